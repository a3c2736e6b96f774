// Sums of sizes that come from outside. They stop at the largest number instead of wrapping to a small one.
#ifndef GANGWAY_BASE_SIZES_H_
#define GANGWAY_BASE_SIZES_H_

#include <cstdint>

namespace gangway {

// More than any device or host has. Two such sizes can be added.
inline constexpr uint64_t kSizeMax = uint64_t{1} << 62;

constexpr uint64_t AddSizes(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

constexpr uint64_t MultiplySizes(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}  // namespace gangway

#endif  // GANGWAY_BASE_SIZES_H_
