// Implementation of the public header array.h.
#include "gangway/array.h"

#include <array>

#include "absl/strings/str_cat.h"

#include "gangway/client/api/array_state.h"
#include "gangway/client/api/callee.h"
#include "gangway/client/api/elements.h"
#include "gangway/client/api/tracing.h"
#include "gangway/client/client.h"

namespace gangway {
namespace {

absl::Status CheckCopyOf(const api::ArrayState& array, const Sharding& sharding,
                         const std::source_location& where) {
  const absl::Status has = api::CheckHasElements(&array);
  if (!has.ok()) return api::Mistake(api::kCopy, where, std::string(has.message()), "");
  if (const absl::Status status = array.session()->Check(sharding.mesh()); !status.ok())
    return api::Mistake(api::kCopy, where, std::string(status.message()), "");
  return api::CheckCopy(array.type(), sharding, where);
}

}  // namespace

const Shape& Array::shape() const {
  return state_ == nullptr ? api::UnknownType()->shape : state_->type().shape;
}

ElementType Array::element_type() const {
  return state_ == nullptr ? api::UnknownType()->element_type : state_->type().element_type;
}

const Sharding& Array::sharding() const {
  return state_ == nullptr ? api::UnknownType()->sharding : state_->type().sharding;
}

Status Array::Wait() const {
  if (const absl::Status status = api::CheckHasElements(state_.get()); !status.ok()) return status;
  return state_->session()->Await(std::array{state_->handle()});
}

Status Array::GetInto(ElementType type, Room room, void* to) const {
  if (const absl::Status status = api::CheckHasElements(state_.get()); !status.ok()) return status;
  const bool has_type = state_->type().sharding.status().ok();  // else it failed before it got one
  if (has_type && state_->type().element_type != type)
    return absl::InvalidArgumentError(absl::StrCat(
        "an array of ", ToText(element_type()), ToText(shape()), " was asked for elements of ",
        ToText(type), ": call Get with the C++ type of its own elements"));
  return api::GetElements(*state_, [&](size_t bytes) { return room(to, bytes); });
}

Result<std::vector<std::byte>> Array::GetBytes() const {
  std::vector<std::byte> bytes;
  const auto room = [](void* to, size_t count) -> std::byte* {
    auto& made = *static_cast<std::vector<std::byte>*>(to);
    made.resize(count);
    return made.data();
  };
  if (Status status = GetInto(element_type(), room, &bytes); !status.ok()) return status;
  return bytes;
}

Array Array::CopyTo(const Sharding& sharding, std::source_location where) const {
  if (state_ == nullptr || sharding == this->sharding()) return *this;
  if (api::Tracing* const trace = api::Tracing::Current(); trace != nullptr)
    return trace->Copy(*this, sharding, where);
  const std::shared_ptr<api::Session>& session = api::SessionOf(*state_);
  const auto type = std::make_shared<const api::ArrayType>(
      api::ArrayType{.element_type = element_type(),
                     .shape = shape(),
                     .sharding = sharding,
                     .shard_shape = state_->type().shard_shape});
  if (const absl::Status status = CheckCopyOf(*state_, sharding, where); !status.ok())
    return api::FailedArray(session, type, status);
  session->AwaitRoom();
  const ArrayHandle copy = session->client().NewArrayHandle();
  session->client().Copy(std::array{state_->handle()}, std::array{copy}, sharding.mesh().devices(),
                         "");
  return api::ArrayState::NewArray(session, type, copy);
}

}  // namespace gangway
