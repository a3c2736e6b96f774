// Unpredictable bits, for keys, secrets and numbers that no two processes may share. In a World, they follow from its
// seed.
#ifndef GANGWAY_BASE_RANDOM_H_
#define GANGWAY_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace gangway {

uint64_t RandomBits();
std::string RandomBytes(size_t size);

}  // namespace gangway

#endif  // GANGWAY_BASE_RANDOM_H_
