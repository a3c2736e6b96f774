// Calls of compiled programs (executable.h). A call is one operation of the session, whatever its arguments are: those
// that are all shards of one array, in order, are that array; others are lists of shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/buffer.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"
#include "gangway/frontdoor/pjrt/executable.h"
#include "gangway/xla/compile_options.pb.h"

struct PJRT_ExecuteContext {};

struct PJRT_DeviceAssignmentSerialized {
  std::string bytes;
};

namespace gangway::pjrt {
namespace {

constexpr char kExecutable[] = "the executable";

// The arguments of a call, as the session takes them.
struct Arguments {
  std::vector<ArrayHandle> arrays;  // 0: gathered
  std::vector<GatheredArgument> gathered;
  std::vector<std::shared_ptr<Shard>> shards;  // which live until the call is submitted
};

absl::Status AddArgument(const PJRT_LoadedExecutable_Execute_Args& args, uint32_t index,
                         Arguments& arguments) {
  const size_t first = arguments.shards.size();
  bool is_whole = true;
  for (size_t i = 0; i < args.num_devices; ++i) {
    const PJRT_Buffer* const buffer = args.argument_lists[i][index];
    GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<Shard> shard, ShardIn(buffer), "argument ", index);
    const PJRT_Device* const device = args.executable->devices[i];
    if (buffer->memory->device != device) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", index, " is on ", buffer->memory->device->description.text,
                       ", the program runs on ", device->description.text, " at this place"));
    }
    const Array& array = shard->array();
    is_whole &= shard->index() == i && array.shard_count() == args.num_devices &&
                (i == 0 || &array == &arguments.shards[first]->array());
    arguments.shards.push_back(std::move(shard));
  }
  if (is_whole) {
    arguments.arrays.push_back(arguments.shards[first]->array().handle());
    return absl::OkStatus();
  }
  arguments.arrays.push_back(0);
  GatheredArgument& gathered = arguments.gathered.emplace_back();
  gathered.index = index;
  for (size_t i = first; i < arguments.shards.size(); ++i)
    gathered.shards.push_back(arguments.shards[i]->name());
  return absl::OkStatus();
}

bool IsKept(const PJRT_ExecuteOptions* options, uint32_t index) {
  if (options == nullptr || options->num_non_donatable_input_indices == 0) return false;
  const int64_t* const begin = options->non_donatable_input_indices;
  return std::find(begin, begin + options->num_non_donatable_input_indices,
                   static_cast<int64_t>(index)) != begin + options->num_non_donatable_input_indices;
}

std::vector<uint32_t> KeptOf(const PJRT_LoadedExecutable_Execute_Args& args) {
  std::vector<uint32_t> kept;
  for (uint32_t index : args.executable->program->info->donated) {
    if (IsKept(args.options, index)) kept.push_back(index);
  }
  return kept;
}

// The buffers of donated arguments are at their end, as their shards are in the cluster.
void ReleaseDonated(const PJRT_LoadedExecutable_Execute_Args& args) {
  for (uint32_t index : args.executable->program->info->donated) {
    if (index >= args.num_args || IsKept(args.options, index)) continue;
    for (size_t i = 0; i < args.num_devices; ++i) args.argument_lists[i][index]->Release();
  }
}

absl::Status CheckCall(const PJRT_LoadedExecutable_Execute_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const PJRT_LoadedExecutable& executable = *args.executable;
  if (executable.deleted) return absl::InvalidArgumentError("the executable was deleted");
  if (args.execute_device != nullptr &&
      (executable.devices.size() != 1 || executable.devices[0] != args.execute_device)) {
    return absl::UnimplementedError(
        "an execution cannot run on other devices than its executable was compiled for");
  }
  if (args.num_devices != executable.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("arguments for ", args.num_devices,
                                                   " devices, the program runs on ",
                                                   executable.devices.size()));
  }
  const size_t expected = executable.program->info->parameters.size();
  if (args.num_args != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(args.num_args, " arguments, the program takes ", expected));
  }
  if (args.options != nullptr && args.options->num_send_ops + args.options->num_recv_ops > 0)
    return absl::UnimplementedError("send and receive callbacks are not known");
  if (args.num_args > 0)
    GANGWAY_RETURN_IF_ERROR(
        Need(static_cast<const void*>(args.argument_lists), "the argument lists"));
  if (!executable.program->results.empty())
    GANGWAY_RETURN_IF_ERROR(
        Need(static_cast<const void*>(args.output_lists), "the lists for the results"));
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadedExecute(PJRT_LoadedExecutable_Execute_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckCall(args));
  const PJRT_LoadedExecutable& executable = *args.executable;
  const Program& program = *executable.program;
  Client* const client = executable.client->session.get();
  AwaitRoom(client);
  Arguments arguments;
  for (size_t i = 0; i < args.num_args; ++i)
    GANGWAY_RETURN_IF_ERROR(AddArgument(args, static_cast<uint32_t>(i), arguments));
  const auto count = static_cast<uint32_t>(args.num_devices);
  auto over = std::make_shared<Outcome>();  // the end of the call
  std::vector<std::shared_ptr<Array>> results;
  std::vector<ArrayHandle> outputs;
  for (size_t i = 0; i < program.results.size(); ++i) {
    outputs.push_back(client->NewArrayHandle());
    results.push_back(std::make_shared<Array>(client, outputs.back(), count, over));
  }
  const std::vector<uint32_t> kept = KeptOf(args);
  CallOptions options{.keep = kept, .gathered = arguments.gathered};
  if (args.options != nullptr) options.launch_id = static_cast<uint32_t>(args.options->launch_id);
  options.ended = [over](const absl::Status& status) { over->Set(status); };
  client->Call(executable.handle, arguments.arrays, outputs, std::move(options));
  ReleaseDonated(args);  // after the call, which names their shards
  for (uint32_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < results.size(); ++r) {
      args.output_lists[i][r] = NewBuffer(executable.devices[i]->memories[program.result_kinds[r]],
                                          program.results[r], results[r], i);
    }
    if (args.device_complete_events != nullptr) args.device_complete_events[i] = NewEvent(over);
  }
  return absl::OkStatus();
}

absl::Status LoadedDestroy(PJRT_LoadedExecutable_Destroy_Args& args) {
  const std::unique_ptr<PJRT_LoadedExecutable> executable(args.executable);
  if (executable == nullptr || executable->deleted) return absl::OkStatus();
  executable->client->session->DropExecutables(
      std::span<const ExecutableHandle>(&executable->handle, 1));
  return absl::OkStatus();
}

absl::Status LoadedExecutable(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.loaded_executable, kExecutable));
  args.executable = new PJRT_Executable{args.loaded_executable->program};
  return absl::OkStatus();
}

absl::Status LoadedDevices(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.addressable_devices = args.executable->devices.data();
  args.num_addressable_devices = args.executable->devices.size();
  return absl::OkStatus();
}

absl::Status LoadedAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const PJRT_LoadedExecutable& executable = *args.executable;
  const size_t partitions = executable.program->partitions;
  xla::DeviceAssignmentProto assignment;
  assignment.set_replica_count(static_cast<int32_t>(executable.program->replicas));
  assignment.set_computation_count(static_cast<int32_t>(partitions));
  for (size_t p = 0; p < partitions; ++p) {
    auto& column = *assignment.add_computations();
    for (size_t r = 0; r < executable.program->replicas; ++r)
      column.add_replica_device_ids(executable.devices[r * partitions + p]->description.id);
  }
  auto serialized = std::make_unique<PJRT_DeviceAssignmentSerialized>();
  serialized->bytes = assignment.SerializeAsString();
  args.serialized_bytes = serialized->bytes.data();
  args.serialized_bytes_size = serialized->bytes.size();
  args.serialized_device_assignment_deleter = [](PJRT_DeviceAssignmentSerialized* done) {
    delete done;
  };
  args.serialized_device_assignment = serialized.release();
  return absl::OkStatus();
}

absl::Status LoadedDelete(PJRT_LoadedExecutable_Delete_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  if (args.executable->deleted.exchange(true)) return absl::OkStatus();
  args.executable->client->session->DropExecutables(
      std::span<const ExecutableHandle>(&args.executable->handle, 1));
  return absl::OkStatus();
}

absl::Status LoadedIsDeleted(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  args.is_deleted = args.executable->deleted;
  return absl::OkStatus();
}

absl::Status LoadedFingerprint(PJRT_LoadedExecutable_Fingerprint_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const std::string& fingerprint = args.executable->program->info->fingerprint;
  args.executable_fingerprint = fingerprint.data();
  args.executable_fingerprint_size = fingerprint.size();
  return absl::OkStatus();
}

absl::Status ContextCreate(PJRT_ExecuteContext_Create_Args& args) {
  args.context = new PJRT_ExecuteContext;
  return absl::OkStatus();
}

absl::Status ContextDestroy(PJRT_ExecuteContext_Destroy_Args& args) {
  delete args.context;
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
