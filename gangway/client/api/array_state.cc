// Implementation of array_state.h.
#include "gangway/client/api/array_state.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/client/api/tracing.h"

namespace gangway::api {

absl::StatusOr<ArrayTypeRef> MakeType(ElementType element_type, const Shape& shape,
                                      const Sharding& sharding) {
  if (ElementBytes(element_type) == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("there is no element type of number ", static_cast<int32_t>(element_type)));
  GANGWAY_ASSIGN_OR_RETURN(Shape shard_shape, FromResult(sharding.ShardShape(shape)));
  return std::make_shared<const ArrayType>(ArrayType{.element_type = element_type,
                                                     .shape = shape,
                                                     .sharding = sharding,
                                                     .shard_shape = std::move(shard_shape)});
}

const ArrayTypeRef& UnknownType() {
  static const auto& unknown = *new ArrayTypeRef(std::make_shared<const ArrayType>());
  return unknown;
}

std::string ToText(const ArrayType& type) {
  return absl::StrCat(gangway::ToText(type.element_type), gangway::ToText(type.shape),
                      ", split as ", type.sharding.ToText());
}

bool AreSameShards(const Sharding& left, const Sharding& right, const Shape& shape) {
  if (left == right) return true;
  const size_t count = left.mesh().devices().size();
  if (count != right.mesh().devices().size()) return false;
  for (size_t i = 0; i < count; ++i) {
    const Result<ShardRange> one = left.RangeOf(i, shape), other = right.RangeOf(i, shape);
    if (!one.ok() || !other.ok() || *one != *other) return false;
  }
  return true;
}

ArrayState::~ArrayState() {
  if (session_ != nullptr) session_->client().Drop(std::span<const ArrayHandle>(&handle_, 1));
}

const std::shared_ptr<Session>& SessionOf(const ArrayState& array) {
  return array.trace() == nullptr ? array.session() : array.trace()->session();
}

Array FailedArray(const std::shared_ptr<Session>& session, ArrayTypeRef type,
                  const absl::Status& why) {
  const ArrayHandle handle = session->client().NewArrayHandle();
  session->client().Poison(std::span<const ArrayHandle>(&handle, 1), why);
  return ArrayState::NewArray(session, std::move(type), handle);
}

absl::Status CheckHasElements(const ArrayState* array) {
  if (array == nullptr)
    return absl::InvalidArgumentError(
        "there is no array: a default-constructed Array, one that was moved away, or the result of "
        "a Function or Program that is none");
  if (array->trace() == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("an array inside of Trace has no elements: return it from the traced function, "
                   "and wait for the result of the program"));
}

}  // namespace gangway::api
