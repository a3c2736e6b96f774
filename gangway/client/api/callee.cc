// Implementation of callee.h, and of Callable in the public header function.h.
#include "gangway/client/api/callee.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/api/tracing.h"
#include "gangway/wire/failure.h"

namespace gangway {

const std::string& Callable::name() const {
  static const auto& none = *new std::string("nothing");
  return callee_ == nullptr ? none : callee_->name();
}

size_t Callable::argument_count() const {
  return callee_ == nullptr ? 0 : callee_->argument_count();
}

size_t Callable::result_count() const {
  return callee_ == nullptr ? 0 : callee_->result_types().size();
}

std::vector<Array> Callable::All(std::span<const Argument> arguments,
                                 std::source_location where) const {
  std::vector<Array> results(result_count());
  Into(arguments, results, where);
  return results;
}

void Callable::Into(std::span<const Argument> arguments, std::span<Array> results,
                    std::source_location where) const {
  if (callee_ == nullptr) return;
  if (results.size() == result_count()) return callee_->Call(arguments, results, where);
  callee_->Fail(results,
                api::Mistake(name(), where,
                             absl::StrCat("the call takes ", results.size(), " results, and ",
                                          name(), " gives ", result_count()),
                             "call it with its arguments in braces, f({x, y}), for all of "
                             "its results"));
}

namespace api {

std::string ToText(const std::source_location& where) {
  const std::string file = where.file_name();
  return absl::StrCat(file.substr(file.rfind('/') + 1), ":", where.line());
}

absl::Status Mistake(const std::string& callee, const std::source_location& where,
                     const std::string& message, const std::string& advice) {
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInvalidArgument, message, advice);
  failure.set_program(callee);
  failure.set_source(ToText(where));
  return wire::ToStatus(failure);
}

absl::Status CheckCopy(const ArrayType& type, const Sharding& sharding,
                       const std::source_location& where) {
  if (!sharding.status().ok()) return Mistake(kCopy, where, sharding.status().message(), "");
  if (AreSameShards(type.sharding, sharding, type.shape)) return absl::OkStatus();
  return Mistake(kCopy, where,
                 absl::StrCat("an array of ", ToText(type), " cannot be copied to ",
                              sharding.ToText(), ": its shards would be others"),
                 "copy it to as many devices, split the same way, and reshard it by a function");
}

void Callee::Fail(std::span<Array> results, const absl::Status& why) const {
  for (size_t i = 0; i < results.size(); ++i) {
    ArrayTypeRef type = i < result_types_.size() ? result_types_[i] : UnknownType();
    Tracing* const trace = Tracing::Current();
    results[i] = trace != nullptr ? trace->Fail(std::move(type), why)
                                  : FailedArray(session_, std::move(type), why);
  }
}

absl::Status Callee::CheckCount(size_t arguments, const std::source_location& where) const {
  if (arguments == argument_count_) return absl::OkStatus();
  return Mistake(
      name_, where,
      absl::StrCat(name_, " takes ", argument_count_, " arguments and was called with ", arguments),
      "");
}

absl::Status Callee::CheckOurs(size_t index, const ArrayState* array,
                               const std::source_location& where) const {
  if (absl::Status status = CheckHasElements(array); !status.ok())
    return Mistake(
        name_, where,
        absl::StrCat("argument ", index, " of ", name_, ": ", std::string(status.message())), "");
  if (array->session() == session_) return absl::OkStatus();
  return Mistake(name_, where,
                 absl::StrCat("argument ", index, " of ", name_, " is of another session"),
                 "get its elements, and put them into this one");
}

void Callee::ToArrays(std::span<const ArrayHandle> handles, std::span<Array> results) const {
  for (size_t i = 0; i < handles.size(); ++i)
    results[i] = ArrayState::NewArray(session_, result_types_[i], handles[i]);
}

}  // namespace api
}  // namespace gangway
