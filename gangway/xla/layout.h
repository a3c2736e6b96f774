// The order of an array's dimensions in memory. Gangway keeps every array row-major: the functions here write
// that layout for clients, and refuse any other. Pure functions.
#ifndef GANGWAY_XLA_LAYOUT_H_
#define GANGWAY_XLA_LAYOUT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/ifrt_types.pb.h"

namespace gangway::xla {

LayoutProto RowMajor(size_t rank);

// XLA's text form, minor to major: "{1,0}".
std::string RowMajorText(size_t rank);

// UNIMPLEMENTED, with both layouts: `layout` is not the row-major one of an array of this rank.
absl::Status CheckRowMajor(const LayoutProto& layout, size_t rank);

// The same, of XLA's text form: "{1,0}", "{1,0:T(8,128)}". Empty: the default layout.
absl::Status CheckRowMajor(std::string_view text, size_t rank);

// The same, of the layout in a request for an array. INVALID_ARGUMENT: malformed. UNIMPLEMENTED: of a
// type that Gangway does not know. An absent one is the default.
absl::Status CheckRowMajor(const SerializedProto& layout, size_t rank);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_LAYOUT_H_
