// Implementation of tracing.h.
#include "gangway/client/api/tracing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/base/status.h"

namespace gangway::api {
namespace {

thread_local Tracing* current = nullptr;

}  // namespace

Tracing* Tracing::Current() { return current; }

Tracing::Scope::Scope(Tracing* tracing) { current = tracing; }
Tracing::Scope::~Scope() { current = nullptr; }

Array Tracing::NewValue(ArrayTypeRef type) {
  return ArrayState::ToArray(
      std::make_shared<const ArrayState>(shared_from_this(), std::move(type), values_++));
}

Array Tracing::AddArgument(ArrayTypeRef type) {
  ++arguments_;
  is_given_away_.push_back(false);
  return NewValue(std::move(type));
}

Array Tracing::Fail(ArrayTypeRef type, const absl::Status& why) {
  if (mistake_.ok()) mistake_ = why;
  return NewValue(std::move(type));
}

absl::StatusOr<Tracing::Input> Tracing::InputOf(const std::string& callee, size_t index,
                                                const ArrayState* array,
                                                const std::source_location& where) {
  const auto refuse = [&](const std::string& why, const char* advice) {
    return Mistake(callee, where, absl::StrCat("argument ", index, " of ", callee, " ", why),
                   advice);
  };
  if (array == nullptr) return refuse("is no array", "");
  if (array->trace() == this) return Input{.is_held = false, .index = array->value()};
  if (array->trace() != nullptr)
    return refuse("is of another trace", "pass it to that one's program as a result");
  if (array->session() != session_)
    return refuse("is of another session", "get its elements, and put them into this one");
  const auto [found, is_new] = held_index_.try_emplace(array, static_cast<uint32_t>(held_.size()));
  if (is_new) held_.push_back(array->ToArray());
  return Input{.is_held = true, .index = found->second};
}

// A held array is an argument of every launch, so no call may consume it.
absl::Status Tracing::NoteDonation(const FunctionState& function, const Node& node,
                                   const std::source_location& where) {
  for (const uint32_t index : function.info().donated) {
    if (std::ranges::binary_search(node.kept, index)) continue;
    const Input& input = node.inputs[index];
    if (input.is_held)
      return Mistake(function.name(), where,
                     absl::StrCat("argument ", index, " of ", function.name(),
                                  " is given away, and comes from outside of the trace, so that "
                                  "the next launch needs it, too"),
                     "pass it to the program as an argument");
    if (input.index < arguments_) is_given_away_[input.index] = true;
  }
  return absl::OkStatus();
}

absl::Status Tracing::Record(const std::shared_ptr<const FunctionState>& function,
                             std::span<const Argument> arguments,
                             const std::source_location& where) {
  GANGWAY_RETURN_IF_ERROR(mistake_);
  if (function->session() != session_)
    return Mistake(function->name(), where,
                   absl::StrCat(function->name(), " is of another session than the trace"),
                   "compile it with the same Cluster");
  GANGWAY_RETURN_IF_ERROR(function->CheckNumber(arguments.size(), where));
  Node node{.function = function.get(), .kept = function->KeptOf(arguments)};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArrayState* const array = ArrayState::Of(arguments[i].array());
    GANGWAY_ASSIGN_OR_RETURN(const Input input, InputOf(function->name(), i, array, where));
    GANGWAY_RETURN_IF_ERROR(
        function->CheckArgument(i, array->type(), FunctionState::Where::kOnAnyMesh, where));
    node.inputs.push_back(input);
  }
  GANGWAY_RETURN_IF_ERROR(NoteDonation(*function, node, where));
  node.outputs = static_cast<uint32_t>(function->result_types().size());
  node.source = ToText(where);
  nodes_.push_back(std::move(node));
  functions_.push_back(function);
  return absl::OkStatus();
}

void Tracing::Call(const std::shared_ptr<const FunctionState>& function,
                   std::span<const Argument> arguments, std::span<Array> results,
                   const std::source_location& where) {
  if (absl::Status status = Record(function, arguments, where); !status.ok())
    return function->Fail(results, status);
  for (size_t i = 0; i < results.size(); ++i) results[i] = NewValue(function->result_types()[i]);
}

Array Tracing::Copy(const Array& array, const Sharding& sharding,
                    const std::source_location& where) {
  const ArrayState& state = *ArrayState::Of(array);
  const auto type =
      std::make_shared<const ArrayType>(ArrayType{.element_type = state.type().element_type,
                                                  .shape = state.type().shape,
                                                  .sharding = sharding,
                                                  .shard_shape = state.type().shard_shape});
  absl::Status status = mistake_;
  if (status.ok()) status = session_->Check(sharding.mesh());
  if (status.ok()) status = CheckCopy(state.type(), sharding, where);
  if (!status.ok()) return Fail(type, status);
  const absl::StatusOr<Input> input = InputOf(kCopy, 0, &state, where);
  if (!input.ok()) return Fail(type, input.status());
  nodes_.push_back(
      {.inputs = {*input}, .devices = sharding.mesh().devices(), .source = ToText(where)});
  return NewValue(type);
}

program::ValueId Tracing::NumberOf(const Input& input) const {
  if (input.is_held) return arguments_ + input.index;
  const bool is_argument = input.index < arguments_;
  return input.index + (is_argument ? 0 : static_cast<uint32_t>(held_.size()));
}

absl::StatusOr<Tracing::Recorded> Tracing::Finish(std::span<const Array> results) {
  GANGWAY_RETURN_IF_ERROR(mistake_);
  std::vector<Input> returned;
  Recorded recorded{.program = program::Program(name_)};
  for (size_t i = 0; i < results.size(); ++i) {
    const ArrayState* const array = ArrayState::Of(results[i]);
    const absl::StatusOr<Input> input = InputOf(name_, i, array, std::source_location::current());
    if (!input.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("result ", i, " of the program ", name_,
                       " is no array of this trace and its session: return one that it made"));
    returned.push_back(*input);
    recorded.result_types.push_back(array->type_ref());
  }
  program::Program& program = recorded.program;
  for (size_t i = 0; i < arguments_ + held_.size(); ++i) program.AddArgument();
  for (Node& node : nodes_) {
    std::vector<program::ValueId> inputs;
    for (const Input& input : node.inputs) inputs.push_back(NumberOf(input));
    if (node.function != nullptr) {
      program.AddCall(absl::StrCat(gangway::NumberOf(node.function->handle())), std::move(inputs),
                      {}, node.outputs);
      program.SetKept(std::move(node.kept));
    } else {
      program.AddTransfer(inputs.front(), node.devices);
    }
    program.SetSource(node.source);
  }
  for (const Input& input : returned) program.AddResult(NumberOf(input));
  for (uint32_t i = 0; i < arguments_; ++i)
    if (is_given_away_[i]) recorded.donated.push_back(i);
  std::ranges::sort(functions_);
  const auto repeated = std::ranges::unique(functions_);
  functions_.erase(repeated.begin(), repeated.end());
  recorded.functions = std::move(functions_);
  recorded.held = std::move(held_);
  return recorded;
}

}  // namespace gangway::api
