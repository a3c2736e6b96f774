// The two forms of elements that take less than a byte. In host memory each has a byte, of which it takes the lowest
// bits, as in NumPy; in device memory several share one, the first in the lowest bits. Pure functions, no state.
#ifndef GANGWAY_DEVICE_PACKED_ELEMENTS_H_
#define GANGWAY_DEVICE_PACKED_ELEMENTS_H_

#include <algorithm>
#include <cstddef>
#include <span>

namespace gangway::device {

// `per_byte`: ElementsPerDeviceByte, which is 1, 2, 4 or 8.
constexpr size_t PackedBytes(size_t elements, int per_byte) {
  return elements / per_byte + (elements % per_byte != 0);
}

// The bits of a byte that one element takes, where it comes first.
constexpr std::byte PackedMask(int per_byte) {
  return static_cast<std::byte>((1 << (8 / per_byte)) - 1);
}

// `packed` has PackedBytes of `elements`. Bits that belong to no element become zero, and those of an element's byte
// that it does not take are left out.
inline void PackElements(std::span<const std::byte> elements, int per_byte,
                         std::span<std::byte> packed) {
  std::ranges::fill(packed, std::byte{0});
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto shift = static_cast<int>(i % per_byte) * (8 / per_byte);
    packed[i / per_byte] |= (elements[i] & PackedMask(per_byte)) << shift;
  }
}

inline void UnpackElements(std::span<const std::byte> packed, int per_byte,
                           std::span<std::byte> elements) {
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto shift = static_cast<int>(i % per_byte) * (8 / per_byte);
    elements[i] = (packed[i / per_byte] >> shift) & PackedMask(per_byte);
  }
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PACKED_ELEMENTS_H_
