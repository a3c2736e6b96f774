// Sizes of XLA element types, named by the wire numbers of xla.PrimitiveType. Pure functions, no
// state.
#ifndef GANGWAY_DEVICE_ELEMENT_TYPE_H_
#define GANGWAY_DEVICE_ELEMENT_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gangway/device/device.h"

namespace gangway::device {

// The numbers are XLA's, from xla_data.proto, and never change.
enum ElementType : int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kToken = 17,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kS4 = 21,
  kU4 = 22,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kS2 = 26,
  kU2 = 27,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kS1 = 30,
  kU1 = 31,
  kF4E2M1FN = 32,
  kF8E8M0FNU = 33,
};

// Bytes that one element takes in host memory (sub-byte types take one; a token takes none).
// nullopt: unknown type.
constexpr std::optional<size_t> HostElementBytes(int32_t element_type) {
  switch (element_type) {
    case kToken:
      return 0;
    case kPred:
    case kS8:
    case kU8:
    case kS4:
    case kU4:
    case kS2:
    case kU2:
    case kS1:
    case kU1:
    case kF4E2M1FN:
    case kF8E5M2:
    case kF8E4M3FN:
    case kF8E4M3B11FNUZ:
    case kF8E5M2FNUZ:
    case kF8E4M3FNUZ:
    case kF8E4M3:
    case kF8E3M4:
    case kF8E8M0FNU:
      return 1;
    case kS16:
    case kU16:
    case kF16:
    case kBF16:
      return 2;
    case kS32:
    case kU32:
    case kF32:
      return 4;
    case kS64:
    case kU64:
    case kF64:
    case kC64:
      return 8;
    case kC128:
      return 16;
    default:
      return std::nullopt;
  }
}

// Elements that share one byte of device memory: 2 for the 4-bit types, 4 for 2-bit, 8 for 1-bit,
// else 1.
constexpr int ElementsPerDeviceByte(int32_t element_type) {
  switch (element_type) {
    case kS4:
    case kU4:
    case kF4E2M1FN:
      return 2;
    case kS2:
    case kU2:
      return 4;
    case kS1:
    case kU1:
      return 8;
    default:
      return 1;
  }
}

// Bytes of the dense host form of `spec`. nullopt: unknown element type, negative dimension, or
// past 2^62 bytes.
inline std::optional<size_t> HostBytes(const ArraySpec& spec) {
  std::optional<size_t> element = HostElementBytes(spec.element_type);
  if (!element) return std::nullopt;
  constexpr size_t kLimit = size_t{1} << 62;
  bool empty = *element == 0;
  for (int64_t dim : spec.dims) {
    if (dim < 0) return std::nullopt;
    empty |= dim == 0;
  }
  if (empty) return 0;  // before the product, which may still be out of range
  size_t total = *element;
  for (int64_t dim : spec.dims) {
    if (static_cast<size_t>(dim) > kLimit / total) return std::nullopt;
    total *= static_cast<size_t>(dim);
  }
  return total;
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_ELEMENT_TYPE_H_
