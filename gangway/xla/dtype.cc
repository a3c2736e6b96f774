// Implementation of dtype.h.
#include "gangway/xla/dtype.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::xla {
namespace {

struct Row {
  PrimitiveType primitive;
  IfrtDTypeProto::Kind ifrt;
  int8_t bytes;
  std::string_view name;
};

constexpr Row kTable[] = {
    {TYPE_PRED, IfrtDTypeProto::KIND_PRED, 1, "pred"},
    {TYPE_S1, IfrtDTypeProto::KIND_S1, 1, "s1"},
    {TYPE_S2, IfrtDTypeProto::KIND_S2, 1, "s2"},
    {TYPE_S4, IfrtDTypeProto::KIND_S4, 1, "s4"},
    {TYPE_S8, IfrtDTypeProto::KIND_S8, 1, "s8"},
    {TYPE_S16, IfrtDTypeProto::KIND_S16, 2, "s16"},
    {TYPE_S32, IfrtDTypeProto::KIND_S32, 4, "s32"},
    {TYPE_S64, IfrtDTypeProto::KIND_S64, 8, "s64"},
    {TYPE_U1, IfrtDTypeProto::KIND_U1, 1, "u1"},
    {TYPE_U2, IfrtDTypeProto::KIND_U2, 1, "u2"},
    {TYPE_U4, IfrtDTypeProto::KIND_U4, 1, "u4"},
    {TYPE_U8, IfrtDTypeProto::KIND_U8, 1, "u8"},
    {TYPE_U16, IfrtDTypeProto::KIND_U16, 2, "u16"},
    {TYPE_U32, IfrtDTypeProto::KIND_U32, 4, "u32"},
    {TYPE_U64, IfrtDTypeProto::KIND_U64, 8, "u64"},
    {TYPE_F16, IfrtDTypeProto::KIND_F16, 2, "f16"},
    {TYPE_F32, IfrtDTypeProto::KIND_F32, 4, "f32"},
    {TYPE_F64, IfrtDTypeProto::KIND_F64, 8, "f64"},
    {TYPE_BF16, IfrtDTypeProto::KIND_BF16, 2, "bf16"},
    {TYPE_C64, IfrtDTypeProto::KIND_C64, 8, "c64"},
    {TYPE_C128, IfrtDTypeProto::KIND_C128, 16, "c128"},
    {TYPE_TOKEN, IfrtDTypeProto::KIND_TOKEN, 0, "token"},
    {TYPE_F8E3M4, IfrtDTypeProto::KIND_F8E3M4, 1, "f8e3m4"},
    {TYPE_F8E4M3, IfrtDTypeProto::KIND_F8E4M3, 1, "f8e4m3"},
    {TYPE_F8E4M3FN, IfrtDTypeProto::KIND_F8E4M3FN, 1, "f8e4m3fn"},
    {TYPE_F8E4M3B11FNUZ, IfrtDTypeProto::KIND_F8E4M3B11FNUZ, 1, "f8e4m3b11fnuz"},
    {TYPE_F8E4M3FNUZ, IfrtDTypeProto::KIND_F8E4M3FNUZ, 1, "f8e4m3fnuz"},
    {TYPE_F8E5M2, IfrtDTypeProto::KIND_F8E5M2, 1, "f8e5m2"},
    {TYPE_F8E5M2FNUZ, IfrtDTypeProto::KIND_F8E5M2FNUZ, 1, "f8e5m2fnuz"},
    {TYPE_F8E8M0FNU, IfrtDTypeProto::KIND_F8E8M0FNU, 1, "f8e8m0fnu"},
    {TYPE_F4E2M1FN, IfrtDTypeProto::KIND_F4E2M1FN, 1, "f4e2m1fn"},
};

constexpr int kRankMax = 64;
constexpr int64_t kBytesMax = int64_t{1} << 62;

const Row* FindPrimitive(int32_t element_type) {
  for (const Row& row : kTable) {
    if (row.primitive == element_type) return &row;
  }
  return nullptr;
}

absl::Status Unknown(std::string_view numbering, int32_t number) {
  return absl::InvalidArgumentError(absl::StrCat("element type ", number, " (",
                                                 std::string(numbering),
                                                 " numbering) is not supported in arrays"));
}

}  // namespace

absl::StatusOr<int64_t> ElementBytes(int32_t element_type) {
  const Row* row = FindPrimitive(element_type);
  if (row == nullptr) return Unknown("XLA", element_type);
  return row->bytes;
}

bool IsNarrow(int32_t element_type) {
  switch (element_type) {
    case TYPE_S1:
    case TYPE_S2:
    case TYPE_S4:
    case TYPE_U1:
    case TYPE_U2:
    case TYPE_U4:
    case TYPE_F4E2M1FN:
      return true;
    default:
      return false;
  }
}

std::string_view ElementName(int32_t element_type) {
  const Row* row = FindPrimitive(element_type);
  return row == nullptr ? "?" : row->name;
}

absl::StatusOr<PrimitiveType> FromIfrt(IfrtDTypeProto::Kind kind) {
  for (const Row& row : kTable) {
    if (row.ifrt == kind) return row.primitive;
  }
  return Unknown("IFRT", kind);
}

absl::StatusOr<IfrtDTypeProto::Kind> ToIfrt(int32_t element_type) {
  const Row* row = FindPrimitive(element_type);
  if (row == nullptr) return Unknown("XLA", element_type);
  return row->ifrt;
}

absl::StatusOr<int64_t> ElementCount(std::span<const int64_t> dims) {
  if (dims.size() > kRankMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an array of ", dims.size(), " dimensions; the limit is ", kRankMax));
  }
  int64_t count = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", dim, " of an array is negative"));
    empty = empty || dim == 0;
  }
  if (empty) return 0;  // before the product, which may still be out of range
  for (int64_t dim : dims) {
    if (__builtin_mul_overflow(count, dim, &count) || count > kBytesMax) {
      return absl::InvalidArgumentError(
          "the dimensions of an array multiply to more than 2^62 elements");
    }
  }
  return count;
}

absl::StatusOr<int64_t> DenseBytes(int32_t element_type, std::span<const int64_t> dims) {
  absl::StatusOr<int64_t> element = ElementBytes(element_type);
  GANGWAY_RETURN_IF_ERROR(element);
  absl::StatusOr<int64_t> count = ElementCount(dims);
  GANGWAY_RETURN_IF_ERROR(count);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*count, *element, &bytes) || bytes > kBytesMax) {
    return absl::InvalidArgumentError("an array takes more than 2^62 bytes");
  }
  return bytes;
}

}  // namespace gangway::xla
