// Implementation of layout.h.
#include "gangway/frontdoor/pjrt/layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/strided.h"

namespace gangway::pjrt {
namespace {

absl::Status Malformed() {
  return absl::InvalidArgumentError(absl::StrCat("the compile option ", kLayoutsOption,
                                                 " is malformed: leave it to Gangway's package"));
}

absl::StatusOr<std::vector<Order>> ReadList(absl::string_view text) {
  std::vector<Order> orders;
  if (text.empty()) return orders;
  for (absl::string_view one : absl::StrSplit(text, ';')) {
    Order& order = orders.emplace_back();
    if (one.empty()) continue;
    for (absl::string_view dim : absl::StrSplit(one, ',')) {
      if (!absl::SimpleAtoi(dim, &order.emplace_back())) return Malformed();
    }
  }
  return orders;
}

}  // namespace

absl::StatusOr<Orders> ReadOrders(std::string_view text) {
  Orders orders;
  if (text.empty()) return orders;
  const std::vector<std::string> lists =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '|');
  if (lists.size() != 2) return Malformed();
  GANGWAY_ASSIGN_OR_RETURN(orders.parameters, ReadList(lists[0]));
  GANGWAY_ASSIGN_OR_RETURN(orders.results, ReadList(lists[1]));
  return orders;
}

void HideLayouts(std::string& program) {
  constexpr std::string_view kAttribute = "mhlo.layout_mode", kUnknown = "mhlo.layout_hint";
  static_assert(kAttribute.size() == kUnknown.size());  // lengths of texts are part of the bytes
  for (size_t at = program.find(kAttribute); at != std::string::npos;
       at = program.find(kAttribute, at + kAttribute.size()))
    program.replace(at, kUnknown.size(), kUnknown);
}

Order RowMajorOrder(size_t rank) {
  Order order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
  return order;
}

absl::StatusOr<Order> FullOrder(const Order& order, size_t rank) {
  Order row_major = RowMajorOrder(rank);
  if (order.empty()) return row_major;
  if (std::is_permutation(order.begin(), order.end(), row_major.begin(), row_major.end()))
    return order;
  return absl::InvalidArgumentError(absl::StrCat("the layout {", absl::StrJoin(order, ","),
                                                 "} (minor to major) does not list each of ", rank,
                                                 " dimensions once"));
}

bool IsRowMajor(std::span<const int64_t> minor_to_major) {
  const size_t rank = minor_to_major.size();
  for (size_t i = 0; i < rank; ++i)
    if (minor_to_major[i] != static_cast<int64_t>(rank - 1 - i)) return false;
  return true;
}

bool IsRowMajor(const Shape& shape) { return IsRowMajor(shape.minor_to_major); }

absl::StatusOr<std::vector<int64_t>> StridesOf(const Shape& shape) {
  GANGWAY_ASSIGN_OR_RETURN(int64_t stride, xla::ElementBytes(shape.element_type));
  std::vector<int64_t> strides(shape.dims.size(), 0);
  for (int64_t dim : shape.minor_to_major) {
    strides[static_cast<size_t>(dim)] = stride;
    stride *= std::max<int64_t>(shape.dims[static_cast<size_t>(dim)], 1);
  }
  return strides;
}

absl::Status Arrange(std::string_view dense, const Shape& shape, char* to) {
  GANGWAY_ASSIGN_OR_RETURN(const int64_t element, xla::ElementBytes(shape.element_type));
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, StridesOf(shape));
  return xla::CopyFromDense(dense, element, shape.dims, strides, {to, shape.bytes});
}

}  // namespace gangway::pjrt
