// Requests about compiled functions. A compile is answered when it is done: the client does not
// know the handle earlier, so no execution can precede it. Other requests overtake a compile.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/program_devices.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/executable.h"
#include "gangway/xla/layout.h"
#include "gangway/xla/sharding.h"

namespace gangway::ifrt {
namespace {

constexpr char kProgram[] = "xla::ifrt::XlaProgram";
constexpr char kProgramLater[] = "xla::ifrt::HloProgram";  // the name announced for later jaxlibs
constexpr char kCompileOptions[] = "xla::ifrt::XlaCompileOptions";

absl::Status UnknownExecutable(uint64_t handle) {
  return absl::NotFoundError(
      absl::StrCat("executable ", handle, " is unknown to this session, or was destroyed"));
}

// --- Compile ---

absl::StatusOr<xla::ExecutableDescription> Describe(const ExecutableInfo& info) {
  if (!info.optimized_program.empty()) return xla::DescribeExecutable(info.optimized_program);
  // A backend that keeps no program: only the shapes on one device are known.
  xla::ExecutableDescription description;
  const auto operand = [](const TensorSpec& spec) {
    return xla::Operand{spec.element_type, spec.shard_dims, spec.shard_dims, {}, true};
  };
  for (const TensorSpec& spec : info.parameters) description.parameters.push_back(operand(spec));
  for (const TensorSpec& spec : info.results) description.results.push_back(operand(spec));
  return description;
}

absl::StatusOr<ArrayInfoRef> OutputInfo(const xla::Operand& operand, const TensorSpec& spec,
                                        const std::vector<uint32_t>& devices) {
  auto info = std::make_shared<ArrayInfo>();
  info->element_type = operand.element_type;
  info->dims = operand.global_dims;
  info->shard_dims = operand.shard_dims;
  info->devices = devices;
  info->memory_kind = MemoryKindFromClient(spec.memory_kind);
  info->fully_replicated = operand.fully_replicated;
  auto sharding = xla::Sharding::FromProto(operand.sharding, static_cast<int64_t>(devices.size()));
  if (sharding.ok()) {
    SetOffsets(*sharding, *info);
    using Kind = xla::Sharding::Kind;
    const bool are_copies = std::ranges::all_of(operand.sharding.last_tile_dims(), [](int type) {
      return type == xla::OpShardingProto::TYPE_REPLICATED;
    });
    if (are_copies && (sharding->kind() == Kind::kTiled || sharding->kind() == Kind::kReplicated))
      info->hlo_sharding = std::make_shared<const xla::OpShardingProto>(operand.sharding);
  }
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, xla::DenseBytes(info->element_type, info->shard_dims));
  info->shard_bytes = static_cast<uint64_t>(bytes);
  return info;
}

void SetMetadata(const xla::ExecutableDescription& description, const ExecutableInfo& info,
                 xla::ExecutableMetadataResponse& metadata) {
  if (description.partition_count > 1) {
    for (const auto& parameter : description.parameters) {
      *metadata.mutable_parameter_shardings()->add_shardings() = parameter.sharding;
    }
    for (const auto& result : description.results)
      *metadata.mutable_output_shardings()->add_shardings() = result.sharding;
    metadata.mutable_parameter_shardings();
    metadata.mutable_output_shardings();
  }
  // Exactly what DefaultLayout answers, or JAX would reject arguments of types below a byte: the
  // layouts of its programs carry the number of bits.
  auto& parameter_layouts = *metadata.mutable_parameter_layouts_list();
  for (const auto& parameter : description.parameters)
    *parameter_layouts.add_layouts() = xla::RowMajor(parameter.shard_dims.size());
  auto& output_layouts = *metadata.mutable_output_layouts_list();
  for (const auto& result : description.results)
    *output_layouts.add_layouts() = xla::RowMajor(result.shard_dims.size());
  auto& kinds = *metadata.mutable_output_memory_kinds()->add_lists();
  for (const TensorSpec& spec : info.results)
    kinds.add_memory_kinds(MemoryKindForClient(spec.memory_kind));
  auto& donated = *metadata.mutable_donated_inputs_list();
  for (uint32_t index : info.donated) donated.add_indices(index);
  auto& memory = *metadata.mutable_memory_stats_value();
  memory.set_argument_bytes(static_cast<int64_t>(info.argument_bytes));
  memory.set_output_bytes(static_cast<int64_t>(info.output_bytes));
  memory.set_temporary_bytes(static_cast<int64_t>(info.temp_bytes));
  memory.set_alias_bytes(static_cast<int64_t>(info.alias_bytes));
  memory.set_generated_code_bytes(static_cast<int64_t>(info.code_bytes));
  metadata.set_generated_code_bytes(static_cast<int64_t>(info.code_bytes));
}

absl::StatusOr<std::shared_ptr<const Executable>> MakeExecutable(
    ExecutableHandle handle, std::vector<uint32_t> devices,
    std::shared_ptr<const ExecutableInfo> info) {
  GANGWAY_ASSIGN_OR_RETURN(xla::ExecutableDescription description, Describe(*info));
  if (description.results.size() != info->results.size()) {
    return absl::InternalError(absl::StrCat("program ", info->name, " has ",
                                            description.results.size(), " results in its HLO and ",
                                            info->results.size(), " in its description"));
  }
  auto executable = std::make_shared<Executable>();
  executable->handle = handle;
  executable->devices = std::move(devices);
  executable->donated = info->donated;
  for (size_t i = 0; i < info->results.size(); ++i) {
    GANGWAY_ASSIGN_OR_RETURN(
        ArrayInfoRef output,
        OutputInfo(description.results[i], info->results[i], executable->devices));
    executable->outputs.push_back(std::move(output));
  }
  SetMetadata(description, *info, executable->metadata);
  executable->info = std::move(info);
  return executable;
}

IfrtResponse CompileReply(uint64_t op_id, const Executable& executable) {
  IfrtResponse response = ReplyTo(op_id);
  xla::CompileResponse& body = *response.mutable_compile();
  body.set_executable_handle(NumberOf(executable.handle));
  body.set_name(ValidUtf8(executable.info->name));
  body.set_num_devices(static_cast<int32_t>(executable.devices.size()));
  for (uint32_t device : executable.devices) {
    body.add_device_ids(static_cast<int32_t>(device));
    body.add_addressable_device_ids(static_cast<int32_t>(device));
  }
  if (executable.info->fingerprint.empty()) {
    *body.mutable_fingerprint_error() =
        ToProto(absl::UnimplementedError("this executable has no fingerprint"));
  } else {
    body.set_fingerprint_value(executable.info->fingerprint);
  }
  return response;
}

absl::Status StartCompile(SessionContext& context, uint64_t op_id, xla::CompileRequest& request) {
  if (!request.host_callbacks().empty()) {
    return absl::UnimplementedError(
        "host callbacks (jax.debug.print, pure_callback) are not served through the IFRT proxy: "
        "connect through Gangway's plugin, gangway.connect(door=\"pjrt\")");
  }
  const std::string& type = request.program().type_name();
  if (type != kProgram && type != kProgramLater) {
    return absl::UnimplementedError(
        absl::StrCat("a program of type '", type, "' is not served; only StableHLO programs are"));
  }
  xla::IfrtXlaCompileOptionsProto options;
  if (request.compile_options().type_name() != kCompileOptions ||
      !options.ParseFromString(request.compile_options().data())) {
    return absl::InvalidArgumentError("the compile options are not XLA's");
  }
  absl::StatusOr<std::vector<uint32_t>> devices =
      ProgramDevices(context.client.cluster(), options.compile_options());
  GANGWAY_RETURN_IF_ERROR(devices);
  // The callback needs the handle that Compile returns, and may run first: both meet here.
  struct Pending {
    Mutex mutex;
    ExecutableHandle handle GANGWAY_GUARDED_BY(mutex){};
    std::function<void()> finish GANGWAY_GUARDED_BY(mutex);
  };
  auto pending = std::make_shared<Pending>();
  auto done = [&context, op_id, pending,
               devices = *devices](const Result<std::shared_ptr<const ExecutableInfo>>& info) {
    auto finish = [&context, op_id, devices, info](ExecutableHandle handle) {
      absl::StatusOr<std::shared_ptr<const Executable>> executable =
          info.ok() ? MakeExecutable(handle, devices, *info) : absl::Status(info.status());
      if (!executable.ok()) return context.replies.Send(ErrorReply(op_id, executable.status()));
      IfrtResponse response = CompileReply(op_id, **executable);
      context.executables.Add(*std::move(executable));
      context.replies.Send(std::move(response));
    };
    ExecutableHandle handle{};
    {
      MutexLock lock(pending->mutex);
      handle = pending->handle;
      if (handle == ExecutableHandle()) {
        pending->finish = [finish, pending = pending.get()]()
                              GANGWAY_NO_ANALYSIS { finish(pending->handle); };
        return;
      }
    }
    finish(handle);
  };
  const ExecutableHandle handle = context.client.Compile(
      std::move(*request.mutable_program()->mutable_data()), "mlir",
      options.compile_options().SerializeAsString(), *std::move(devices), std::move(done));
  std::function<void()> finish;
  {
    MutexLock lock(pending->mutex);
    pending->handle = handle;
    finish = std::move(pending->finish);
  }
  if (finish) finish();
  return absl::OkStatus();
}

// --- Execute ---

absl::Status FirstOutputs(const Executable& executable, const std::vector<ArrayHandle>& handles,
                          xla::ExecuteResponse& body) {
  for (size_t i = 0; i < handles.size(); ++i) {
    const ArrayInfo& info = *executable.outputs[i];
    GANGWAY_ASSIGN_OR_RETURN(xla::IfrtDTypeProto::Kind kind, xla::ToIfrt(info.element_type));
    GANGWAY_ASSIGN_OR_RETURN(xla::IfrtShardingProto sharding, WriteSharding(info));
    auto& output = *body.add_outputs();
    output.mutable_dtype()->set_kind(kind);
    output.mutable_shape()->mutable_dims()->Add(info.dims.begin(), info.dims.end());
    *output.mutable_sharding() = std::move(sharding);
    output.set_array_handle(NumberOf(handles[i]));
  }
  return absl::OkStatus();
}

void MarkDonated(SessionContext& context, const Executable& executable,
                 const xla::ExecuteRequest& request) {
  const auto& keep = request.options().non_donatable_input_indices();
  for (uint32_t index : executable.donated) {
    if (index >= static_cast<uint32_t>(request.argument_handles_size())) continue;
    if (std::find(keep.begin(), keep.end(), static_cast<int32_t>(index)) != keep.end()) continue;
    auto found =
        context.arrays.find(ArrayHandle(request.argument_handles(static_cast<int>(index))));
    if (found != context.arrays.end()) found->second.deleted = true;
  }
}

// The arguments that the client library shall not consume, by index.
absl::StatusOr<std::vector<uint32_t>> Kept(const xla::ExecuteRequest& request) {
  std::vector<uint32_t> kept;
  for (const int32_t index : request.options().non_donatable_input_indices()) {
    if (index < 0 || index >= request.argument_handles_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", index, " of an execution is marked as kept, but it has ",
                       request.argument_handles_size(), " arguments: name one of them"));
    }
    kept.push_back(static_cast<uint32_t>(index));
  }
  return kept;
}

void WatchStatus(SessionContext& context, uint64_t handle,
                 const std::vector<ArrayHandle>& results) {
  auto status = std::make_shared<Outcome>();
  context.statuses[handle] = status;
  if (results.empty()) return status->Set(absl::OkStatus());
  context.client.Await(results, [status](absl::Status outcome) { status->Set(outcome); });
}

absl::Status ExecuteOrFail(SessionContext& context, const xla::ExecuteRequest& request,
                           IfrtResponse& response) {
  std::shared_ptr<const Executable> executable =
      context.executables.Find(ExecutableHandle(request.executable_handle()));
  if (executable == nullptr) return UnknownExecutable(request.executable_handle());
  if (!request.device_ids().empty() &&
      !std::equal(request.device_ids().begin(), request.device_ids().end(),
                  executable->devices.begin(), executable->devices.end(),
                  [](int32_t a, uint32_t b) { return static_cast<uint32_t>(a) == b; })) {
    return absl::UnimplementedError(
        "an execution cannot run on other devices than its executable was compiled for");
  }
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> keep, Kept(request));
  const std::vector<ArrayHandle> named = ArraysOf(request.result_handles());
  GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                           ResultHandles(context, named, executable->outputs.size()));
  xla::ExecuteResponse& body = *response.mutable_execute();
  // The client asks for the outputs once, by naming no handles, and remembers them.
  if (named.empty()) {
    GANGWAY_RETURN_IF_ERROR(FirstOutputs(*executable, handles, body));
  }
  MarkDonated(context, *executable, request);
  for (size_t i = 0; i < handles.size(); ++i)
    context.arrays[handles[i]].info = executable->outputs[i];
  const auto& options = request.options();
  context.client.Call(executable->handle, ArraysOf(request.argument_handles()), handles,
                      {.keep = keep, .launch_id = static_cast<uint32_t>(options.launch_id())});
  if (options.fill_status()) {
    const uint64_t status_handle = request.status_handle() != 0
                                       ? request.status_handle()
                                       : NumberOf(context.client.NewArrayHandle());
    body.set_status_handle(status_handle);
    WatchStatus(context, status_handle, handles);
  }
  return absl::OkStatus();
}

// Answers when the execution behind `handle` is complete; at once if there is none.
template <typename SetBody>
void WhenOver(SessionContext& context, uint64_t op_id, uint64_t handle, SetBody set_body) {
  auto reply = [&replies = context.replies, op_id, set_body](absl::Status status) {
    if (!status.ok()) return replies.Send(ErrorReply(op_id, status));
    IfrtResponse response = ReplyTo(op_id);
    set_body(response);
    replies.Send(std::move(response));
  };
  auto found = context.statuses.find(handle);
  if (found == context.statuses.end()) return reply(absl::OkStatus());
  std::shared_ptr<Outcome> status = found->second;
  context.statuses.erase(found);
  status->Then(std::move(reply));
}

}  // namespace

// --- Tables ---

void ExecutableTable::Add(std::shared_ptr<const Executable> executable) {
  MutexLock lock(mutex_);
  const ExecutableHandle handle = executable->handle;
  table_[handle] = std::move(executable);
}

std::shared_ptr<const Executable> ExecutableTable::Find(ExecutableHandle handle) const {
  MutexLock lock(mutex_);
  auto found = table_.find(handle);
  return found == table_.end() ? nullptr : found->second;
}

bool ExecutableTable::Erase(ExecutableHandle handle) {
  MutexLock lock(mutex_);
  return table_.erase(handle) > 0;
}

// --- Requests ---

void Compile(SessionContext& context, uint64_t op_id, xla::CompileRequest& request) {
  absl::Status status = StartCompile(context, op_id, request);
  if (!status.ok()) context.replies.Send(ErrorReply(op_id, status));
}

absl::Status Metadata(SessionContext& context, const xla::ExecutableMetadataRequest& request,
                      IfrtResponse& response) {
  std::shared_ptr<const Executable> executable =
      context.executables.Find(ExecutableHandle(request.executable_handle()));
  if (executable == nullptr) return UnknownExecutable(request.executable_handle());
  *response.mutable_executable_metadata() = executable->metadata;
  return absl::OkStatus();
}

absl::Status Execute(SessionContext& context, const xla::ExecuteRequest& request,
                     IfrtResponse& response) {
  absl::Status status = ExecuteOrFail(context, request, response);
  if (status.ok()) return status;
  if (request.options().fill_status() && request.status_handle() != 0) {
    auto failed = std::make_shared<Outcome>();
    failed->Set(status);
    context.statuses[request.status_handle()] = std::move(failed);
  }
  return Spoil(context, ArraysOf(request.result_handles()), status);
}

void CheckFuture(SessionContext& context, uint64_t op_id, const xla::CheckFutureRequest& request) {
  WhenOver(context, op_id, request.future_handle(),
           [](IfrtResponse& response) { response.mutable_check_future(); });
}

void FetchExecuteResult(SessionContext& context, uint64_t op_id,
                        const xla::FetchExecuteResultRequest& request) {
  WhenOver(context, op_id, request.status_handle(),
           [](IfrtResponse& response) { response.mutable_fetch_execute_result(); });
}

absl::Status ExecutableCost(SessionContext& context, const xla::ExecutableCostRequest& request,
                            IfrtResponse& response) {
  std::shared_ptr<const Executable> executable =
      context.executables.Find(ExecutableHandle(request.executable_handle()));
  if (executable == nullptr) return UnknownExecutable(request.executable_handle());
  auto& attributes =
      *response.mutable_executable_cost()->mutable_attributes()->mutable_attributes();
  for (const auto& [name, value] : executable->info->cost)
    attributes[name].set_float_value(static_cast<float>(value));
  return absl::OkStatus();
}

absl::Status ExecutableText(SessionContext& context, const xla::ExecutableTextRequest& request,
                            IfrtResponse& response) {
  std::shared_ptr<const Executable> executable =
      context.executables.Find(ExecutableHandle(request.executable_handle()));
  if (executable == nullptr) return UnknownExecutable(request.executable_handle());
  GANGWAY_ASSIGN_OR_RETURN(std::string text, xla::ProgramText(executable->info->optimized_program));
  response.mutable_executable_text()->set_text(ValidUtf8(text));
  return absl::OkStatus();
}

absl::Status ExecutableDelete(SessionContext& context, const xla::ExecutableDeleteRequest& request,
                              IfrtResponse& response) {
  const ExecutableHandle handle{request.executable_handle()};
  if (context.executables.Erase(handle)) {
    context.client.DropExecutables(std::span<const ExecutableHandle>(&handle, 1));
  }
  response.mutable_executable_delete()->set_future_handle(
      NumberOf(context.client.NewArrayHandle()));
  return absl::OkStatus();
}

absl::Status ExecutableIsDeleted(SessionContext& context,
                                 const xla::ExecutableIsDeletedRequest& request,
                                 IfrtResponse& response) {
  response.mutable_executable_is_deleted()->set_is_deleted(
      context.executables.Find(ExecutableHandle(request.executable_handle())) == nullptr);
  return absl::OkStatus();
}

absl::Status ExecutableDestruct(SessionContext& context,
                                const xla::ExecutableDestructRequest& request,
                                IfrtResponse& response) {
  const ExecutableHandle handle{request.executable_handle()};
  if (context.executables.Erase(handle)) {
    context.client.DropExecutables(std::span<const ExecutableHandle>(&handle, 1));
  }
  response.mutable_executable_destruct();
  return absl::OkStatus();
}

}  // namespace gangway::ifrt
