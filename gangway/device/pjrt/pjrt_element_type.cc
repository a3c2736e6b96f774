// Implementation of pjrt_element_type.h.
#include "gangway/device/pjrt/pjrt_element_type.h"

#include "absl/strings/str_cat.h"

#include "gangway/device/element_type.h"

namespace gangway::device {
namespace {

struct Pair {
  int32_t xla;
  PJRT_Buffer_Type pjrt;
};

constexpr Pair kPairs[] = {
    {kPred, PJRT_Buffer_Type_PRED},
    {kS8, PJRT_Buffer_Type_S8},
    {kS16, PJRT_Buffer_Type_S16},
    {kS32, PJRT_Buffer_Type_S32},
    {kS64, PJRT_Buffer_Type_S64},
    {kU8, PJRT_Buffer_Type_U8},
    {kU16, PJRT_Buffer_Type_U16},
    {kU32, PJRT_Buffer_Type_U32},
    {kU64, PJRT_Buffer_Type_U64},
    {kF16, PJRT_Buffer_Type_F16},
    {kF32, PJRT_Buffer_Type_F32},
    {kF64, PJRT_Buffer_Type_F64},
    {kC64, PJRT_Buffer_Type_C64},
    {kBF16, PJRT_Buffer_Type_BF16},
    {kToken, PJRT_Buffer_Type_TOKEN},
    {kC128, PJRT_Buffer_Type_C128},
    {kF8E5M2, PJRT_Buffer_Type_F8E5M2},
    {kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {kS4, PJRT_Buffer_Type_S4},
    {kU4, PJRT_Buffer_Type_U4},
    {kF8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ},
    {kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ},
    {kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ},
    {kS2, PJRT_Buffer_Type_S2},
    {kU2, PJRT_Buffer_Type_U2},
    {kF8E4M3, PJRT_Buffer_Type_F8E4M3},
    {kF8E3M4, PJRT_Buffer_Type_F8E3M4},
    {kF4E2M1FN, PJRT_Buffer_Type_F4E2M1FN},
    {kF8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU},
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

}  // namespace gangway::device
