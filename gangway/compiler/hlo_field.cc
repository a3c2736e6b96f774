// Implementation of hlo_field.h.
#include "gangway/compiler/hlo_field.h"

#include <google/protobuf/unknown_field_set.h>

#include <climits>

namespace gangway::compiler {

std::optional<std::string> FieldOf(const std::string& message, int number) {
  google::protobuf::UnknownFieldSet fields;
  if (message.size() > INT_MAX || !fields.ParseFromString(message)) return std::nullopt;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return field.length_delimited();
  }
  return std::nullopt;
}

}  // namespace gangway::compiler
