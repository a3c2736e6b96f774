// Implementation of program_state.h, and of the public header program.h.
#include "gangway/client/api/program_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/client/api/session.h"

namespace gangway {

Program::Program(std::shared_ptr<const api::ProgramState> state)
    : Callable(state), state_(std::move(state)) {}

size_t Program::node_count() const {
  return state_ == nullptr ? 0 : state_->program().work_count();
}

size_t Program::held_count() const { return state_ == nullptr ? 0 : state_->held_count(); }

std::string Program::ToText() const {
  return state_ == nullptr ? std::string() : Print(state_->program());
}

Result<Program> Trace(const Cluster& cluster, std::string name, const Traced& traced,
                      const std::vector<Array>& examples, Dispatch dispatch) {
  return ToResult(api::ProgramState::Trace(api::Session::Of(cluster), std::move(name), traced,
                                           examples, dispatch));
}

namespace api {
namespace {

absl::StatusOr<std::vector<ArrayTypeRef>> TypesOf(const std::string& name,
                                                  const std::shared_ptr<Session>& session,
                                                  std::span<const Array> examples) {
  std::vector<ArrayTypeRef> types;
  for (size_t i = 0; i < examples.size(); ++i) {
    const ArrayState* const array = ArrayState::Of(examples[i]);
    GANGWAY_RETURN_IF_ERROR(CheckHasElements(array), "example ", i, " of the program ", name);
    if (array->session() != session)
      return absl::InvalidArgumentError(
          absl::StrCat("example ", i, " of the program ", name, " is of another session"));
    types.push_back(array->type_ref());
  }
  return types;
}

}  // namespace

absl::StatusOr<Program> ProgramState::Trace(const std::shared_ptr<Session>& session,
                                            std::string name, const Traced& traced,
                                            std::span<const Array> examples, Dispatch dispatch) {
  if (Tracing::Current() != nullptr)
    return absl::InvalidArgumentError(absl::StrCat(
        "the program ", name, " cannot be traced inside of another trace: trace it before"));
  GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayTypeRef> taken, TypesOf(name, session, examples));
  const auto tracing = std::make_shared<Tracing>(session, name);
  std::vector<Array> arguments;
  for (const ArrayTypeRef& type : taken) arguments.push_back(tracing->AddArgument(type));
  absl::StatusOr<Tracing::Recorded> recorded;
  {
    const Tracing::Scope scope(tracing.get());
    recorded = tracing->Finish(traced(arguments));
  }
  GANGWAY_RETURN_IF_ERROR(recorded);
  std::vector<ArrayHandle> like;
  for (const Array& example : examples) like.push_back(ArrayState::Of(example)->handle());
  for (const Array& held : recorded->held) like.push_back(ArrayState::Of(held)->handle());
  ProgramHandle handle{};
  const absl::Status registered = session->Ask([&](StatusCallback done) {
    handle = session->implementation().RegisterProgram(
        recorded->program, like, std::move(done), /*sequential=*/dispatch == Dispatch::kSequential);
  });
  const std::shared_ptr<const ProgramState> state(
      new ProgramState(session, std::move(name), std::move(taken), *std::move(recorded), handle));
  GANGWAY_RETURN_IF_ERROR(registered);
  return Program(state);
}

ProgramState::~ProgramState() {
  session()->implementation().DropPrograms(std::span<const ProgramHandle>(&handle_, 1));
}

absl::Status ProgramState::CheckArgument(size_t index, const Argument& argument,
                                         const std::source_location& where) const {
  const ArrayState* const array = ArrayState::Of(argument.array());
  GANGWAY_RETURN_IF_ERROR(CheckOurs(index, array, where));
  const ArrayType& type = array->type();
  const ArrayType& taken = *taken_[index];
  if (type.element_type != taken.element_type || type.shape != taken.shape ||
      type.sharding.mesh().devices() != taken.sharding.mesh().devices() ||
      !AreSameShards(type.sharding, taken.sharding, type.shape))
    return Mistake(name(), where,
                   absl::StrCat("argument ", index, " of the program ", name(), " is ",
                                ToText(type), ", and it was traced with ", ToText(taken)),
                   "pass such an array, or trace the program for this one");
  if (!argument.is_donated() && std::ranges::binary_search(recorded_.donated, index))
    return Mistake(name(), where,
                   absl::StrCat("argument ", index, " of the program ", name(),
                                " is given away by a call of it, and not by its caller"),
                   "pass it as Donate(x)");
  return absl::OkStatus();
}

void ProgramState::Call(std::span<const Argument> arguments, std::span<Array> results,
                        const std::source_location& where) const {
  if (Tracing::Current() != nullptr)
    return Fail(results,
                Mistake(name(), where,
                        absl::StrCat("the program ", name(), " cannot be called inside of a trace"),
                        "call the functions that it calls"));
  if (absl::Status status = CheckCount(arguments.size(), where); !status.ok())
    return Fail(results, status);
  std::vector<ArrayHandle> handles;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (absl::Status status = CheckArgument(i, arguments[i], where); !status.ok())
      return Fail(results, status);
    handles.push_back(ArrayState::Of(arguments[i].array())->handle());
  }
  for (const Array& held : recorded_.held) handles.push_back(ArrayState::Of(held)->handle());
  session()->AwaitRoom();
  const std::vector<ArrayHandle> made = session()->NewHandles(results.size());
  session()->implementation().Launch(handle_, handles, made);
  ToArrays(made, results);
}

}  // namespace api
}  // namespace gangway
