// Orders of dimensions that a script asks for. Every array of the cluster is row-major (xla/layout.h), so another order
// is a label of a buffer. The Python package (_layouts.py) names the orders in a compile option, and the program is
// compiled without them, for row-major parameters and results. The bytes of a labelled buffer are put in its order
// where a caller sees them as they lie on the device: in raw copies, through pointers, and in copies to the host
// without a layout of their own. Nothing else looks at the label: a program takes any buffer of the right shape.
//
// Alternative: real layouts on the devices. Copies, fetches and donation would need one for each array, in all roles.
//
// Pure functions.
#ifndef GANGWAY_FRONTDOOR_PJRT_LAYOUT_H_
#define GANGWAY_FRONTDOOR_PJRT_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/frontdoor/pjrt/array.h"

namespace gangway::pjrt {

inline constexpr char kLayoutsOption[] = "gangway_layouts";  // of python/gangway/_layouts.py

// Minor to major; empty: row-major.
using Order = std::vector<int64_t>;

struct Orders {
  std::vector<Order> parameters, results;
};

// Of the option's text: "0,1;|1,0,2" has a column-major parameter, a row-major one, and a result. Empty: all are
// row-major. INVALID_ARGUMENT: malformed.
absl::StatusOr<Orders> ReadOrders(std::string_view text);

// Renames the attribute by which a program, in any form of MLIR, tells XLA the layouts: its name is in the program's
// bytes as it is, and XLA ignores those that it does not know. jaxlib reads it from its own copy, so the package cannot
// take it out.
void HideLayouts(std::string& program);

// The order in full. INVALID_ARGUMENT: it is none of an array of this rank.
absl::StatusOr<Order> FullOrder(const Order& order, size_t rank);

Order RowMajorOrder(size_t rank);
bool IsRowMajor(std::span<const int64_t> minor_to_major);
bool IsRowMajor(const Shape& shape);

// Byte strides of the shape's order.
absl::StatusOr<std::vector<int64_t>> StridesOf(const Shape& shape);

// Puts dense, row-major bytes in the shape's order; both have shape.bytes.
absl::Status Arrange(std::string_view dense, const Shape& shape, char* to);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_LAYOUT_H_
