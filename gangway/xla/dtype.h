// Element types. Gangway uses XLA's PrimitiveType; the IFRT protocol numbers a few types
// differently. Pure functions on untrusted wire numbers; an unknown number is INVALID_ARGUMENT.
#ifndef GANGWAY_XLA_DTYPE_H_
#define GANGWAY_XLA_DTYPE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/ifrt_types.pb.h"

namespace gangway::xla {

// Bytes of one element in host memory. Types narrower than a byte take one; a token takes none.
absl::StatusOr<int64_t> ElementBytes(int32_t element_type);

// Narrower than a byte. False for an unknown number.
bool IsNarrow(int32_t element_type);

// "f32"; "?" for an unknown number.
std::string_view ElementName(int32_t element_type);

absl::StatusOr<PrimitiveType> FromIfrt(IfrtDTypeProto::Kind kind);
absl::StatusOr<IfrtDTypeProto::Kind> ToIfrt(int32_t element_type);

// Elements and bytes of a dense array. INVALID_ARGUMENT for a negative dimension, more than 64
// dimensions, or more than 2^62 bytes.
absl::StatusOr<int64_t> ElementCount(std::span<const int64_t> dims);
absl::StatusOr<int64_t> DenseBytes(int32_t element_type, std::span<const int64_t> dims);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_DTYPE_H_
