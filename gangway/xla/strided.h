// Host buffers whose elements lie with arbitrary byte strides (NumPy views: transposed, reversed,
// sliced) and the dense row-major form that everything else uses. What travels for a strided buffer
// is the smallest run of memory that covers all its elements; with negative strides its element 0
// is not at the start. Pure functions; strides and sizes may be hostile: INVALID_ARGUMENT, never an
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

// The same into memory of the caller's, of exactly the dense form's size: repeated elements (stride
// 0) make that form larger than what was sent, by any factor, so that who reads from a client
// charges it first.
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
