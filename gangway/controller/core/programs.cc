// Implementation of programs.h.
#include "gangway/controller/core/programs.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/program/wire_form.h"

namespace gangway::controller {
namespace {

program::FunctionType TypeOf(const Executable& executable) {
  program::FunctionType type;
  type.name = executable.info.name();
  for (const ArrayShapeRef& shape : executable.parameters) type.parameters.push_back(*shape);
  for (const ArrayShapeRef& shape : executable.results) type.results.push_back(*shape);
  type.donated = {executable.info.donated().begin(), executable.info.donated().end()};
  std::ranges::sort(type.donated);
  for (const DeviceId device : executable.devices->devices())
    type.devices.push_back(device.number());
  return type;
}

// What is known of the arrays that the arguments are like.
std::vector<LoweredProgram::Argument> TypesOf(const wire::RegisterProgramOp& op,
                                              const SessionArrays& arrays) {
  std::vector<LoweredProgram::Argument> types;
  for (const uint64_t handle : op.like()) {
    const Array* array = handle == 0 ? nullptr : arrays.Find(ArrayHandle(handle));
    types.emplace_back();
    if (array != nullptr && !array->failure) types.back() = {array->shape, array->devices};
  }
  return types;
}

void SetCall(const program::Node& node, ExecutableHandle handle, const Executable& executable,
             wire::CallOp& op) {
  op.set_executable(NumberOf(handle));
  for (const program::ValueId input : node.inputs) op.add_arguments(NumberOf(HandleOf(input)));
  for (uint32_t i = 0; i < node.output_count; ++i)
    op.add_results(NumberOf(HandleOf(node.first_output + i)));
  for (const uint32_t index : executable.info.donated())
    if (!std::ranges::binary_search(node.donated, index)) op.add_keep(index);
}

void SetCopy(const program::Node& node, wire::CopyOp& op) {
  op.add_sources(NumberOf(HandleOf(node.inputs[0])));
  op.add_results(NumberOf(HandleOf(node.first_output)));
  op.set_memory_kind(node.memory_kind);
}

void SetView(const program::Node& node, wire::RegroupOp& op) {
  wire::RegroupOp::Result* result = op.add_results();
  result->set_array(NumberOf(HandleOf(node.first_output)));
  if (node.shards.empty()) result->set_replica_of(NumberOf(HandleOf(node.inputs[0])));
  for (size_t i = 0; i < node.shards.size(); ++i) {
    wire::RegroupOp::Shard* shard = result->add_shards();
    shard->set_array(NumberOf(HandleOf(node.inputs[i])));
    shard->set_shard(node.shards[i]);
  }
}

// When each node's workers get it. A view makes nothing: what reads one reads what it is made of.
std::vector<wire::Dispatch> DispatchOf(const program::Program& program, bool sequential) {
  std::vector<wire::Dispatch> dispatch;
  std::vector<bool> is_irregular(program.value_count());
  for (const program::Node& node : program.nodes()) {
    const bool reads_irregular = std::ranges::any_of(
        node.inputs, [&](program::ValueId input) { return is_irregular[input]; });
    dispatch.push_back(reads_irregular ? wire::DISPATCH_AFTER_END
                       : sequential    ? wire::DISPATCH_AFTER_RELEASE
                                       : wire::DISPATCH_PARALLEL);
    const bool makes_irregular =
        node.is_irregular || (node.kind == program::Kind::kView && reads_irregular);
    for (uint32_t i = 0; i < node.output_count; ++i)
      is_irregular[node.first_output + i] = makes_irregular;
  }
  return dispatch;
}

absl::Status OverLimit(uint64_t have, uint64_t more, uint64_t limit, absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat("the session's programs have ", have, " ", what,
                                                   ", ", more, " more would pass the limit of ",
                                                   limit, ": drop some programs"));
}

uint64_t SizeOf(const program::Program& graph) {
  uint64_t size = graph.nodes().size();
  for (const program::Node& node : graph.nodes()) size += node.inputs.size();
  for (const program::Devices& list : graph.device_lists()) size += list.size();
  return size;
}

wire::FailureRef Refused(const absl::Status& why, const std::string& program) {
  wire::Failure failure = wire::ToFailure(why);
  failure.set_launched_program(program);
  wire::Clip(failure);
  return wire::Share(std::move(failure));
}

}  // namespace

void Programs::Open(SessionId session) { sessions_[session]; }

void Programs::Close(SessionId session) { sessions_.erase(session); }

absl::Status Programs::Register(SessionId id, OfSession& session, const wire::RegisterProgramOp& op,
                                const SessionArrays& arrays, RegisteredProgram& program) {
  const uint64_t bytes = op.definition().ByteSizeLong();
  if (bytes > kProgramBytesMax - session.bytes)
    return OverLimit(session.bytes, bytes, kProgramBytesMax, "bytes");
  GANGWAY_ASSIGN_OR_RETURN(program.graph, program::FromWire(op.definition()));
  program.client_nodes = program.graph.work_count();
  program.sequential = op.sequential();
  const uint64_t size = SizeOf(program.graph);
  if (size > kProgramSizeMax - session.size)
    return OverLimit(session.size, size, kProgramSizeMax, "nodes, inputs and devices");
  program.name = std::make_shared<const ProgramName>(
      ProgramName{next_id_++, ShownName(program.graph.name(), wire::kNameMax)});
  GANGWAY_ASSIGN_OR_RETURN(program.lowered, Lower(id, program, TypesOf(op, arrays)));
  outbox_.actions().registered = program.name;
  session.size += program.size = size;
  session.bytes += program.bytes = bytes;
  return absl::OkStatus();
}

void Programs::OnRegister(SessionId id, const wire::RegisterProgramOp& op,
                          const SessionArrays& arrays) {
  OfSession& session = sessions_.at(id);
  const ProgramHandle handle{op.program()};
  absl::Status refused;
  if (handle == ProgramHandle() || session.programs.contains(handle)) {
    refused = absl::InvalidArgumentError(
        absl::StrCat("program handle ", op.program(), " is 0 or in use already"));
  } else if (session.programs.size() >= kProgramsMax) {
    refused = OverLimit(session.programs.size(), 1, kProgramsMax, "registrations");
  } else {
    RegisteredProgram& program = session.programs[handle];
    refused = Register(id, session, op, arrays, program);
    if (!refused.ok()) {
      program.failure = Refused(refused, op.definition().name());
      program.graph = {};
    }
  }
  wire::SessionEvent event;
  event.mutable_registered()->set_program(op.program());
  if (!refused.ok())
    *event.mutable_registered()->mutable_failure() = *Refused(refused, op.definition().name());
  outbox_.ToClient(id, std::move(event));
}

void Programs::OnDrop(SessionId id, const wire::DropOp& op) {
  OfSession& session = sessions_.at(id);
  for (const uint64_t handle : op.handles()) {
    const auto found = session.programs.find(ProgramHandle(handle));
    if (found == session.programs.end()) continue;
    session.size -= found->second.size;
    session.bytes -= found->second.bytes;
    session.programs.erase(found);
  }
}

const RegisteredProgram* Programs::Find(SessionId session, ProgramHandle program) const {
  const auto& programs = sessions_.at(session).programs;
  const auto found = programs.find(program);
  return found == programs.end() ? nullptr : &found->second;
}

wire::FailureRef Programs::LowerAgain(SessionId session, ProgramHandle handle,
                                      const std::vector<LoweredProgram::Argument>& arguments) {
  RegisteredProgram& program = sessions_.at(session).programs.at(handle);
  auto lowered = Lower(session, program, arguments);
  if (!lowered.ok()) return Refused(lowered.status(), program.graph.name());
  program.lowered = *std::move(lowered);
  return nullptr;
}

// --- Lowering ---

absl::StatusOr<LoweredProgram> Programs::Lower(
    SessionId session, const RegisteredProgram& program,
    const std::vector<LoweredProgram::Argument>& arguments) {
  const program::Program& graph = program.graph;
  std::vector<program::ArgumentType> types;
  for (const LoweredProgram::Argument& argument : arguments) {
    program::ArgumentType& type = types.emplace_back();
    if (argument.shape) type.shape = *argument.shape;
    if (!argument.devices) continue;
    for (const DeviceId device : argument.devices->devices())
      type.devices.push_back(device.number());
  }
  for (const program::Devices& list : graph.device_lists()) {
    wire::FailureRef refused;
    fleet_.ListOf(list, refused);
    if (refused) return wire::ToStatus(*refused);
  }
  std::map<std::string, program::FunctionType> functions;
  const auto find = [&](const std::string& name) -> absl::StatusOr<const program::FunctionType*> {
    const auto [known, is_new] = functions.try_emplace(name);
    if (!is_new) return &known->second;
    uint64_t number = 0;
    const Executable* executable = nullptr;
    if (absl::SimpleAtoi(name, &number))
      executable = executables_.Find(session, ExecutableHandle(number));
    if (executable == nullptr || !executable->ready) {
      functions.erase(known);
      return absl::InvalidArgumentError(absl::StrCat(
          "executable handle ", name, " is ",
          executable == nullptr ? "not known in this session: it was dropped, failed to compile, "
                                  "or belongs to another session"
                                : "still being compiled: wait for its answer"));
    }
    known->second = TypeOf(*executable);
    return &known->second;
  };
  GANGWAY_ASSIGN_OR_RETURN(const program::Program lowered, program::Lower(graph, types, find));
  if (lowered.work_count() > program::kNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the program has ", lowered.work_count(), " calls and transfers, of which ",
        lowered.work_count() - graph.work_count(),
        " move inputs to the devices of their calls; the limit is ", program::kNodesMax));
  }
  return StepsOf(session, program, lowered);
}

LoweredProgram Programs::StepsOf(SessionId session, const RegisteredProgram& program,
                                 const program::Program& lowered) {
  LoweredProgram result;
  result.nodes = lowered.work_count();
  std::vector<const Executable*> executables;
  for (const std::string& name : lowered.functions()) {
    uint64_t number = 0;
    const bool is_number = absl::SimpleAtoi(name, &number);
    const ExecutableHandle handle{is_number ? number : 0};
    executables.push_back(executables_.Find(session, handle));  // which the passes found
    result.executables.emplace_back(handle, executables.back()->id);
  }
  std::vector<DeviceListRef> lists;
  for (const program::Devices& list : lowered.device_lists()) lists.push_back(fleet_.ListOf(list));
  std::vector<ArrayShapeRef> shapes;
  for (const ArrayShape& shape : lowered.shapes())
    shapes.push_back(std::make_shared<const ArrayShape>(shape));
  std::vector<std::shared_ptr<const std::string>> sources;
  for (const std::string& source : lowered.sources())
    sources.push_back(std::make_shared<const std::string>(source));
  const std::vector<wire::Dispatch> dispatch = DispatchOf(lowered, program.sequential);
  for (size_t i = 0; i < lowered.nodes().size(); ++i) {
    const program::Node& node = lowered.nodes()[i];
    ProgramStep step;
    step.origin = {program.name, node.origin.node, dispatch[i],
                   node.source ? sources[*node.source] : nullptr};
    switch (node.kind) {
      case program::Kind::kArgument: {
        const program::Value& value = lowered.values()[node.first_output];
        result.arguments.push_back({value.shape ? shapes[*value.shape] : nullptr,
                                    value.devices ? lists[*value.devices] : nullptr});
        continue;
      }
      case program::Kind::kCall:
        SetCall(node, result.executables[node.function].first, *executables[node.function],
                *step.op.mutable_call());
        break;
      case program::Kind::kTransfer:
        SetCopy(node, *step.op.mutable_copy());
        step.devices = lists[*node.devices];
        if (node.origin.is_inserted) step.counting = Nodes::Counting::kUnknownToClient;
        break;
      case program::Kind::kView:
        SetView(node, *step.op.mutable_regroup());
        break;
      case program::Kind::kResult:
        step.result = node.inputs[0];
        break;
      case program::Kind::kFree:
        for (const program::ValueId value : node.inputs)
          step.op.mutable_drop()->add_handles(NumberOf(HandleOf(value)));
        break;
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace gangway::controller
