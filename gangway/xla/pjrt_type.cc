// Implementation of pjrt_type.h.
#include "gangway/xla/pjrt_type.h"

#include "absl/strings/str_cat.h"

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {
namespace {

struct Pair {
  int32_t xla;
  PJRT_Buffer_Type pjrt;
};

constexpr Pair kPairs[] = {
    {TYPE_PRED, PJRT_Buffer_Type_PRED},
    {TYPE_S8, PJRT_Buffer_Type_S8},
    {TYPE_S16, PJRT_Buffer_Type_S16},
    {TYPE_S32, PJRT_Buffer_Type_S32},
    {TYPE_S64, PJRT_Buffer_Type_S64},
    {TYPE_U8, PJRT_Buffer_Type_U8},
    {TYPE_U16, PJRT_Buffer_Type_U16},
    {TYPE_U32, PJRT_Buffer_Type_U32},
    {TYPE_U64, PJRT_Buffer_Type_U64},
    {TYPE_F16, PJRT_Buffer_Type_F16},
    {TYPE_F32, PJRT_Buffer_Type_F32},
    {TYPE_F64, PJRT_Buffer_Type_F64},
    {TYPE_C64, PJRT_Buffer_Type_C64},
    {TYPE_BF16, PJRT_Buffer_Type_BF16},
    {TYPE_TOKEN, PJRT_Buffer_Type_TOKEN},
    {TYPE_C128, PJRT_Buffer_Type_C128},
    {TYPE_F8E5M2, PJRT_Buffer_Type_F8E5M2},
    {TYPE_F8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {TYPE_S4, PJRT_Buffer_Type_S4},
    {TYPE_U4, PJRT_Buffer_Type_U4},
    {TYPE_F8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ},
    {TYPE_F8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ},
    {TYPE_F8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ},
    {TYPE_S2, PJRT_Buffer_Type_S2},
    {TYPE_U2, PJRT_Buffer_Type_U2},
    {TYPE_F8E4M3, PJRT_Buffer_Type_F8E4M3},
    {TYPE_F8E3M4, PJRT_Buffer_Type_F8E3M4},
    {TYPE_F4E2M1FN, PJRT_Buffer_Type_F4E2M1FN},
    {TYPE_F8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU},
};

}  // namespace

absl::StatusOr<PJRT_Buffer_Type> ToPjrtType(int32_t element_type) {
  for (const Pair& pair : kPairs) {
    if (pair.xla == element_type) return pair.pjrt;
  }
  return absl::UnimplementedError(absl::StrCat(
      "element type ", element_type, " (XLA PrimitiveType) has no form in the PJRT C API"));
}

int32_t FromPjrtType(PJRT_Buffer_Type type) {
  for (const Pair& pair : kPairs) {
    if (pair.pjrt == type) return pair.xla;
  }
  return 0;
}

}  // namespace gangway::xla
