// Bytes for arrays.
#ifndef GANGWAY_COMPILER_MUTATIONS_RANDOM_BYTES_H_
#define GANGWAY_COMPILER_MUTATIONS_RANDOM_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace gangway::compiler {

inline std::string RandomBytes(size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  std::ranges::generate(text, [&random] { return static_cast<char>(random()); });
  return text;
}

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_RANDOM_BYTES_H_
