// Converts host buffers with arbitrary byte strides (NumPy views: transposed, reversed, sliced) to
// the dense row-major form that all other code uses, and back. A strided buffer travels as the
// smallest run of memory that covers all its elements; with negative strides, element 0 is not at
// its start. Pure functions. Strides and sizes may be hostile: they give INVALID_ARGUMENT, never an
// access outside the buffers.
#ifndef GANGWAY_XLA_STRIDED_H_
#define GANGWAY_XLA_STRIDED_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::xla {

struct StridedRegion {
  int64_t bytes = 0;        // size of the smallest run of memory
  int64_t zero_offset = 0;  // where element (0, ..., 0) lies in it
  bool dense = false;       // it is the dense row-major form already
};

// `element_bytes` > 0, one stride per dimension.
absl::StatusOr<StridedRegion> Region(int64_t element_bytes, std::span<const int64_t> dims,
                                     std::span<const int64_t> byte_strides);

// `region` must have exactly Region().bytes.
absl::StatusOr<std::string> ToDense(std::string_view region, int64_t element_bytes,
                                    std::span<const int64_t> dims,
                                    std::span<const int64_t> byte_strides);

// Like ToDense, into the caller's memory, which has exactly the dense form's size. Repeated
// elements (stride 0) can make that form larger than the region by any factor, so a caller that
// reads from a client charges the size first.
absl::Status CopyToDense(std::string_view region, int64_t element_bytes,
                         std::span<const int64_t> dims, std::span<const int64_t> byte_strides,
                         std::span<char> dense);

// The inverse; bytes of the region that no element covers are zero.
absl::StatusOr<std::string> FromDense(std::string_view dense, int64_t element_bytes,
                                      std::span<const int64_t> dims,
                                      std::span<const int64_t> byte_strides);
absl::Status CopyFromDense(std::string_view dense, int64_t element_bytes,
                           std::span<const int64_t> dims, std::span<const int64_t> byte_strides,
                           std::span<char> region);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_STRIDED_H_
