// Implementation of function_state.h, and of Function in the public header function.h.
#include "gangway/client/api/function_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/client/api/declared.h"
#include "gangway/client/api/tracing.h"

namespace gangway {

Function::Function(std::shared_ptr<const api::FunctionState> state)
    : Callable(state), state_(std::move(state)) {}

const Mesh& Function::mesh() const {
  static const auto& none = *new Mesh();
  return state_ == nullptr ? none : state_->mesh();
}

const std::vector<uint32_t>& Function::donated() const {
  static const auto& none = *new std::vector<uint32_t>();
  return state_ == nullptr ? none : state_->info().donated;
}

uint64_t Function::temporary_bytes() const {
  return state_ == nullptr ? 0 : state_->info().temp_bytes;
}

namespace api {

absl::StatusOr<Function> FunctionState::Compile(const std::shared_ptr<Session>& session,
                                                std::string stablehlo, const Mesh& mesh,
                                                const FunctionOptions& options) {
  GANGWAY_RETURN_IF_ERROR(session->Check(mesh));
  GANGWAY_ASSIGN_OR_RETURN(std::string compile_options, CompileOptionsOf(stablehlo, mesh, options));
  ExecutableHandle handle{};
  std::shared_ptr<const ExecutableInfo> info;
  GANGWAY_RETURN_IF_ERROR(session->Ask([&](const StatusCallback& done) {
    handle =
        session->client().Compile(std::move(stablehlo), options.format, std::move(compile_options),
                                  mesh.devices(), [&info, done](const auto& compiled) {
                                    if (compiled.ok()) info = *compiled;
                                    done(compiled.status());
                                  });
  }));
  absl::StatusOr<std::vector<ArrayTypeRef>> results = ResultTypes(*info, mesh, options);
  if (!results.ok()) {
    session->client().DropExecutables(std::span<const ExecutableHandle>(&handle, 1));
    return results.status();
  }
  return Function(std::shared_ptr<const FunctionState>(new FunctionState(
      session, handle, std::move(info), mesh, *std::move(results), options.parameters)));
}

FunctionState::FunctionState(const std::shared_ptr<Session>& session, ExecutableHandle handle,
                             std::shared_ptr<const ExecutableInfo> info, Mesh mesh,
                             std::vector<ArrayTypeRef> results, std::vector<Sharding> parameters)
    : Callee(session, info->name, info->parameters.size(), std::move(results)),
      handle_(handle),
      info_(std::move(info)),
      mesh_(std::move(mesh)),
      parameters_(std::move(parameters)) {}

FunctionState::~FunctionState() {
  session()->client().DropExecutables(std::span<const ExecutableHandle>(&handle_, 1));
}

absl::Status FunctionState::CheckArgument(size_t index, const ArrayType& type, Where allowed,
                                          const std::source_location& where) const {
  const TensorSpec& taken = info_->parameters[index];
  const auto refuse = [&](const std::string& takes, const char* advice) {
    return Mistake(
        name(), where,
        absl::StrCat("argument ", index, " of ", name(), " is ", ToText(type), ", and ", takes),
        advice);
  };
  if (static_cast<int32_t>(type.element_type) != taken.element_type ||
      type.shard_shape != taken.shard_dims)
    return refuse(absl::StrCat("it takes shards of ",
                               gangway::ToText(static_cast<ElementType>(taken.element_type)),
                               gangway::ToText(taken.shard_dims)),
                  "convert the array, or compile the function for such arrays");
  const Mesh& mesh = type.sharding.mesh();
  if (allowed == Where::kOnItsMesh && mesh.devices() != mesh_.devices())
    return refuse(absl::StrCat("the function runs on ", mesh_.ToText()),
                  "move the array there (Array::CopyTo), or call both within a Program");
  if (mesh.devices().size() != mesh_.devices().size())
    return refuse(absl::StrCat("the function runs on ", mesh_.ToText()),
                  "put the array onto as many devices");
  if (!parameters_.empty() && !AreSameShards(type.sharding, parameters_[index], type.shape))
    return refuse(absl::StrCat("it takes one split as ", parameters_[index].ToText()),
                  "put the array with this sharding");
  return absl::OkStatus();
}

std::vector<uint32_t> FunctionState::KeptOf(std::span<const Argument> arguments) const {
  std::vector<uint32_t> kept;
  for (const uint32_t index : info_->donated)
    if (index < arguments.size() && !arguments[index].is_donated()) kept.push_back(index);
  return kept;
}

void FunctionState::Call(std::span<const Argument> arguments, std::span<Array> results,
                         const std::source_location& where) const {
  if (Tracing* const trace = Tracing::Current(); trace != nullptr)
    return trace->Call(shared_from_this(), arguments, results, where);
  if (absl::Status status = CheckCount(arguments.size(), where); !status.ok())
    return Fail(results, status);
  std::vector<ArrayHandle> handles(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArrayState* const array = ArrayState::Of(arguments[i].array());
    absl::Status status = CheckOurs(i, array, where);
    if (status.ok()) status = CheckArgument(i, array->type(), Where::kOnItsMesh, where);
    if (!status.ok()) return Fail(results, status);
    handles[i] = array->handle();
  }
  session()->AwaitRoom();
  const std::vector<uint32_t> kept = KeptOf(arguments);
  const std::vector<ArrayHandle> made = session()->NewHandles(results.size());
  session()->client().Call(handle_, handles, made, {.keep = kept});
  ToArrays(made, results);
}

}  // namespace api
}  // namespace gangway
