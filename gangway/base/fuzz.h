// What a fuzz target (`x_fuzz.cc`, gangway_fuzz in CMake) defines, and how one target reads several
// inputs out of its bytes.
//
// With the preset `fuzz`, libFuzzer drives the target (tools/fuzz.sh). In every other build,
// fuzz_regression.cc does: over the seeds and a bounded number of mutations of them, the same ones
// each time, as a test.
#ifndef GANGWAY_BASE_FUZZ_H_
#define GANGWAY_BASE_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gangway::fuzz {

// Valid inputs, made by code, to start from. Every target defines it.
std::vector<std::string> Seeds();

inline std::string_view View(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Pieces with a length of two bytes before each; what is left at the end is the last piece, so that
// any bytes are pieces.
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

// The inverse. A piece has at most 65,535 bytes; more are cut off.
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

// The interface of libFuzzer. The first is every target's; the mutator is for targets whose inputs
// random bytes hardly ever are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed);

#endif  // GANGWAY_BASE_FUZZ_H_
