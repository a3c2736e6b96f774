// The functions that a fuzz target (`x_fuzz.cc`, gangway_fuzz in CMake) defines, and a coding of
// several inputs in one byte string.
//
// With the preset `fuzz`, libFuzzer drives the target (tools/fuzz.sh). In every other build,
// fuzz_regression.cc runs it as a test on the seeds and a bounded number of their mutations, the
// same ones each time.
#ifndef GANGWAY_BASE_FUZZ_H_
#define GANGWAY_BASE_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gangway::fuzz {

// Valid inputs to start from, made by code. Every target defines this function.
std::vector<std::string> Seeds();

inline std::string_view View(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Splits `bytes` into pieces, each after a two-byte length. A length past the end is cut to the
// bytes that remain, so any bytes can be split.
inline std::vector<std::string_view> Split(std::string_view bytes, size_t pieces_max = 64) {
  std::vector<std::string_view> pieces;
  while (bytes.size() > 2 && pieces.size() < pieces_max) {
    const size_t length =
        static_cast<unsigned char>(bytes[0]) | static_cast<unsigned char>(bytes[1]) << 8;
    pieces.push_back(bytes.substr(2, length));
    bytes.remove_prefix(2 + pieces.back().size());
  }
  return pieces;
}

// The inverse of Split. A piece is cut to 65,535 bytes.
inline std::string Join(const std::vector<std::string>& pieces) {
  std::string bytes;
  for (const std::string& piece : pieces) {
    const size_t length = piece.size() < 65535 ? piece.size() : 65535;
    bytes += static_cast<char>(length & 255);
    bytes += static_cast<char>(length >> 8);
    bytes.append(piece, 0, length);
  }
  return bytes;
}

}  // namespace gangway::fuzz

// The interface of libFuzzer. Every target defines the first; the mutator is for targets whose
// inputs random bytes almost never form.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed);

#endif  // GANGWAY_BASE_FUZZ_H_
