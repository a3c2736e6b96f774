// Implementation of strided.h.
#include "gangway/xla/strided.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"

namespace gangway::xla {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 62;
constexpr int64_t kAllocatedMax = int64_t{1} << 40;

absl::Status OutOfRange() {
  return absl::InvalidArgumentError("byte strides of a host buffer span more than 2^62 bytes");
}

template <size_t kBytes>
void CopyRun(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
}

// `count` elements of one row, each side with its own stride.
void CopyRow(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count,
             int64_t element_bytes) {
  if (to_stride == element_bytes && from_stride == element_bytes) {
    std::memcpy(to, from, count * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1:
      return CopyRun<1>(to, to_stride, from, from_stride, count);
    case 2:
      return CopyRun<2>(to, to_stride, from, from_stride, count);
    case 4:
      return CopyRun<4>(to, to_stride, from, from_stride, count);
    case 8:
      return CopyRun<8>(to, to_stride, from, from_stride, count);
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * to_stride, from + i * from_stride, element_bytes);
  }
}

// Calls row(strided_offset, dense_offset) for each row along the last dimension.
template <typename Row>
void ForEachRow(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t row_bytes,
                Row row) {
  const int outer = static_cast<int>(dims.size()) - 1;
  std::vector<int64_t> index(outer, 0);
  int64_t strided = 0;
  for (int64_t dense = 0;; dense += row_bytes) {
    row(strided, dense);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      strided += strides[axis];
      if (++index[axis] < dims[axis]) break;
      strided -= dims[axis] * strides[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

absl::Status WrongSize(std::string_view what, size_t got, int64_t want) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " holds ", got, " bytes; its shape and strides need ", want));
}

absl::StatusOr<int64_t> DenseSize(int64_t element_bytes, std::span<const int64_t> dims) {
  absl::StatusOr<int64_t> count = ElementCount(dims);
  GANGWAY_RETURN_IF_ERROR(count);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*count, element_bytes, &bytes) || bytes > kAllocatedMax)
    return OutOfRange();
  return bytes;
}

}  // namespace

absl::StatusOr<StridedRegion> Region(int64_t element_bytes, std::span<const int64_t> dims,
                                     std::span<const int64_t> byte_strides) {
  if (element_bytes <= 0)
    return absl::InvalidArgumentError("the element size of a host buffer is not positive");
  if (dims.size() != byte_strides.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a host buffer of ", dims.size(),
                                                   " dimensions came with ", byte_strides.size(),
                                                   " byte strides"));
  }
  GANGWAY_ASSIGN_OR_RETURN(int64_t count, ElementCount(dims));
  if (count == 0) return StridedRegion{0, 0, true};
  int64_t low = 0, high = element_bytes, dense_stride = element_bytes;
  bool dense = true;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(dims[i] - 1, byte_strides[i], &reach)) return OutOfRange();
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      return OutOfRange();
    dense = dense && (dims[i] == 1 || byte_strides[i] == dense_stride);
    if (__builtin_mul_overflow(dense_stride, dims[i], &dense_stride)) return OutOfRange();
  }
  if (low < -kBytesMax || high > kBytesMax) return OutOfRange();
  return StridedRegion{high - low, -low, dense};
}

absl::Status CopyToDense(std::string_view region, int64_t element_bytes,
                         std::span<const int64_t> dims, std::span<const int64_t> byte_strides,
                         std::span<char> dense) {
  GANGWAY_ASSIGN_OR_RETURN(StridedRegion layout, Region(element_bytes, dims, byte_strides));
  if (static_cast<int64_t>(region.size()) != layout.bytes)
    return WrongSize("a host buffer", region.size(), layout.bytes);
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, DenseSize(element_bytes, dims));
  if (static_cast<int64_t>(dense.size()) != bytes)
    return WrongSize("a dense array", dense.size(), bytes);
  if (layout.dense) {
    std::copy(region.begin(), region.end(), dense.begin());
    return absl::OkStatus();
  }
  const int64_t row = dims.back();
  ForEachRow(dims, byte_strides, row * element_bytes, [&](int64_t strided, int64_t offset) {
    CopyRow(dense.data() + offset, element_bytes, region.data() + layout.zero_offset + strided,
            byte_strides.back(), row, element_bytes);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> ToDense(std::string_view region, int64_t element_bytes,
                                    std::span<const int64_t> dims,
                                    std::span<const int64_t> byte_strides) {
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, DenseSize(element_bytes, dims));
  std::string dense(bytes, '\0');
  GANGWAY_RETURN_IF_ERROR(CopyToDense(region, element_bytes, dims, byte_strides, dense));
  return dense;
}

absl::Status CopyFromDense(std::string_view dense, int64_t element_bytes,
                           std::span<const int64_t> dims, std::span<const int64_t> byte_strides,
                           std::span<char> region) {
  GANGWAY_ASSIGN_OR_RETURN(StridedRegion layout, Region(element_bytes, dims, byte_strides));
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, DenseSize(element_bytes, dims));
  if (static_cast<int64_t>(dense.size()) != bytes)
    return WrongSize("a dense array", dense.size(), bytes);
  if (static_cast<int64_t>(region.size()) != layout.bytes)
    return WrongSize("a host buffer", region.size(), layout.bytes);
  if (layout.dense) {
    std::copy(dense.begin(), dense.end(), region.begin());
    return absl::OkStatus();
  }
  std::fill(region.begin(), region.end(), '\0');
  const int64_t row = dims.back();
  ForEachRow(dims, byte_strides, row * element_bytes, [&](int64_t strided, int64_t offset) {
    CopyRow(region.data() + layout.zero_offset + strided, byte_strides.back(),
            dense.data() + offset, element_bytes, row, element_bytes);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> FromDense(std::string_view dense, int64_t element_bytes,
                                      std::span<const int64_t> dims,
                                      std::span<const int64_t> byte_strides) {
  GANGWAY_ASSIGN_OR_RETURN(StridedRegion layout, Region(element_bytes, dims, byte_strides));
  if (layout.bytes > kAllocatedMax) return OutOfRange();
  std::string region(layout.bytes, '\0');
  GANGWAY_RETURN_IF_ERROR(CopyFromDense(dense, element_bytes, dims, byte_strides, region));
  return region;
}

}  // namespace gangway::xla
