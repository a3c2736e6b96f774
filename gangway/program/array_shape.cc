// Implementation of array_shape.h.
#include "gangway/program/array_shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/xla/dtype.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway {

std::string ToText(const ArrayShape& shape) {
  std::string text(xla::ElementName(shape.element_type));
  absl::StrAppend(&text, "[", absl::StrJoin(shape.shard_dims, ","), "]");
  if (!shape.memory_kind.empty()) absl::StrAppend(&text, "{", shape.memory_kind, "}");
  return text;
}

bool Fits(const ArrayShape& array, const ArrayShape& parameter) {
  if (parameter.element_type == xla::TYPE_TOKEN && array.element_type == xla::TYPE_PRED)
    return array.shard_dims.size() == 1 && array.shard_dims[0] == 0;
  return array.element_type == parameter.element_type && array.shard_dims == parameter.shard_dims;
}

}  // namespace gangway
