// Implementation of launches.h.
#include "gangway/controller/core/launches.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

wire::FailureRef Refuse(const std::string& program, std::string_view message,
                        std::string_view advice = "") {
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInvalidArgument, message, advice);
  failure.set_launched_program(program);
  return wire::Share(std::move(failure));
}

// Whether an array of these may take the place of the argument for which the program was lowered.
bool IsOfType(const Array& array, const LoweredProgram::Argument& argument) {
  if (array.failure) return true;  // what reads it fails with it
  if (argument.shape == nullptr || array.devices != argument.devices) return false;
  return array.shape == argument.shape || *array.shape == *argument.shape;
}

}  // namespace

wire::FailureRef Launches::Charge(const RegisteredProgram& program, uint64_t times) {
  const uint64_t size = times * program.size;
  if (size <= kBatchSizeMax - batch_size_) {
    batch_size_ += size;
    return nullptr;
  }
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the launches of one message have ", batch_size_, " nodes and inputs, ", size,
                   " more would pass the limit of ", kBatchSizeMax),
      "Wait for results before launching more.");
  failure.set_launched_program(program.graph.name());
  return wire::Share(std::move(failure));
}

wire::FailureRef Launches::Check(const Session& session, const wire::LaunchOp& op) {
  const ProgramHandle handle{op.program()};
  const RegisteredProgram* program = rooms_.programs.Find(session.info.id, handle);
  if (program == nullptr) {
    return Refuse("",
                  absl::StrCat("program handle ", op.program(), " is not known in this session"),
                  "It was dropped, or belongs to another session; register it again.");
  }
  if (program->failure) return program->failure;
  const std::string& name = program->graph.name();
  if (static_cast<uint32_t>(op.arguments_size()) != program->graph.argument_count() ||
      static_cast<uint32_t>(op.results_size()) != program->graph.result_count() ||
      op.nodes() != program->client_nodes) {
    return Refuse(
        name, absl::StrCat("the program takes ", program->graph.argument_count(),
                           " arguments, gives ", program->graph.result_count(), " results and has ",
                           program->client_nodes, " nodes, the launch has ", op.arguments_size(),
                           ", ", op.results_size(), " and ", op.nodes()));
  }
  for (const auto& [executable, id] : program->lowered.executables) {
    const Executable* found = rooms_.executables.Find(session.info.id, executable);
    if (found != nullptr && found->id == id) continue;
    return Refuse(name,
                  absl::StrCat("executable handle ", executable,
                               ", which the program calls, was dropped after its registration"),
                  "Keep the executable for as long as the program, or register a new program.");
  }
  return Charge(*program, 1);
}

wire::FailureRef Launches::BindGathered(const Session& session, const wire::LaunchOp& op,
                                        Session& scope) {
  for (const wire::GatheredArgument& list : op.gathered()) {
    const uint32_t index = list.argument();
    const ArrayHandle handle = HandleOf(index);
    if (index >= static_cast<uint32_t>(op.arguments_size()) ||
        op.arguments(static_cast<int>(index)) != 0 || scope.arrays.Find(handle) != nullptr ||
        list.arrays().empty() || list.arrays_size() != list.shards_size()) {
      return Refuse(
          "", absl::StrCat("argument ", index, " is listed by shards, with ", list.arrays_size(),
                           " arrays and ", list.shards_size(), " shards, but the launch has ",
                           op.arguments_size(), " arguments, or has an array in its place"));
    }
    NamedShards view;
    wire::FailureRef failure = session.arrays.AddShards(list, view);
    DeviceListRef devices;
    if (!failure) devices = rooms_.fleet.ListOf(view.devices, failure);
    if (failure) {
      scope.arrays.BindFailure(handle, std::move(failure));
    } else {
      scope.arrays.Bind(handle, {.failure = nullptr,
                                 .shape = std::move(view.shape),
                                 .devices = std::move(devices),
                                 .runs = std::move(view.runs)});
    }
  }
  return nullptr;
}

wire::FailureRef Launches::BindArguments(const Session& session, const wire::LaunchOp& op,
                                         Session& scope) {
  if (auto failure = BindGathered(session, op, scope)) return failure;
  const ProgramHandle program{op.program()};
  const LoweredProgram& lowered = rooms_.programs.Find(session.info.id, program)->lowered;
  bool are_of_types = true;
  for (uint32_t i = 0; i < lowered.arguments.size(); ++i) {
    const ArrayHandle handle{op.arguments(static_cast<int>(i))};
    if (const Array* array = session.arrays.Find(handle)) {
      scope.arrays.Bind(HandleOf(i), *array);
    } else if (scope.arrays.Find(HandleOf(i)) == nullptr) {
      scope.arrays.BindFailure(HandleOf(i), session.arrays.CheckUsable(handle));
    }
    are_of_types &= IsOfType(*scope.arrays.Find(HandleOf(i)), lowered.arguments[i]);
  }
  if (are_of_types) return nullptr;
  if (auto failure = Charge(*rooms_.programs.Find(session.info.id, program), kLowerings))
    return failure;
  std::vector<LoweredProgram::Argument> types;
  for (uint32_t i = 0; i < lowered.arguments.size(); ++i) {
    const Array& array = *scope.arrays.Find(HandleOf(i));
    types.push_back(array.failure ? lowered.arguments[i]
                                  : LoweredProgram::Argument{array.shape, array.devices});
  }
  return rooms_.programs.LowerAgain(session.info.id, program, types);
}

void Launches::OnLaunch(Session& session, const wire::LaunchOp& op, Time now) {
  const SessionId id = session.info.id;
  Session scope{session.info, SessionArrays(rooms_.fleet, rooms_.storages)};
  wire::FailureRef failure = Check(session, op);
  if (!failure) failure = BindArguments(session, op, scope);
  const RegisteredProgram* program = rooms_.programs.Find(id, ProgramHandle(op.program()));
  if (!failure) failure = rooms_.nodes.CheckRoom(id, program->lowered.nodes);
  if (failure) {
    scope.arrays.Close();
    rooms_.nodes.Refuse(id, failure, op.nodes());
    for (const uint64_t handle : op.results())
      session.arrays.BindFailure(ArrayHandle(handle), failure);
    return;
  }
  int results = 0;
  for (const ProgramStep& step : program->lowered.steps) {
    if (step.op.op_case() == wire::Op::OP_NOT_SET) {
      BindResult(session, ArrayHandle(op.results(results++)), step.result, scope);
    } else {
      rooms_.nodes.SetOrigin(step.origin);
      Apply(step, op, scope, now);
    }
  }
  rooms_.transfers.SendCopies(scope);
  rooms_.nodes.SetOrigin(std::nullopt);
  scope.arrays.Close();
}

void Launches::Apply(const ProgramStep& step, const wire::LaunchOp& op, Session& scope, Time now) {
  if (!Transfers::MayOvertakeCopies(scope, step.op)) rooms_.transfers.SendCopies(scope);
  switch (step.op.op_case()) {
    case wire::Op::kCall:
      return rooms_.calls.OnCall(scope, step.op.call(), op.callback_depth(), now);
    case wire::Op::kCopy:
      return rooms_.transfers.OnCopy(scope, step.op.copy(), now, step.devices, step.counting);
    case wire::Op::kRegroup:
      return scope.arrays.OnRegroup(step.op.regroup());
    default:
      return scope.arrays.OnDrop(step.op.drop(), DropMode::kLetGo);
  }
}

void Launches::BindResult(Session& session, ArrayHandle result, program::ValueId value,
                          Session& scope) {
  if (scope.arrays.Find(HandleOf(value)) == nullptr) rooms_.transfers.SendCopies(scope);
  session.arrays.Bind(result, *scope.arrays.Find(HandleOf(value)));
}

}  // namespace gangway::controller
