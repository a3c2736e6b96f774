// The mapping between XLA's PrimitiveType numbers and PJRT_Buffer_Type. Pure functions.
#ifndef GANGWAY_XLA_PJRT_TYPE_H_
#define GANGWAY_XLA_PJRT_TYPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

namespace gangway::xla {

// UNIMPLEMENTED: the PJRT C API has no such type (names the number).
absl::StatusOr<PJRT_Buffer_Type> ToPjrtType(int32_t element_type);
// 0 (XLA's "invalid") for a type without such a number.
int32_t FromPjrtType(PJRT_Buffer_Type type);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_PJRT_TYPE_H_
