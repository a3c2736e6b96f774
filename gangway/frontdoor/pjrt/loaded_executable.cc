// Calls of compiled programs (executable.h). A call is one operation of the session, whatever its arguments are: those
// that are all shards of one array, in order, are that array; others are lists of shards, and if a list comes again, an
// array that is made of it (gathered_cache.h).
#include <algorithm>
#include <span>
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
  // Which live until the call is submitted.
  std::vector<std::shared_ptr<Shard>> shards;  // by argument, then device
  std::vector<GatheredArray> made;
};

// What a call runs, and where.
struct Target {
  ExecutableHandle executable{};
  std::span<PJRT_Device* const> devices;  // by logical position
};

absl::StatusOr<Target> TargetOf(const PJRT_LoadedExecutable_Execute_Args& args) {
  const PJRT_LoadedExecutable& executable = *args.executable;
  if (executable.portable == nullptr) return Target{executable.handle, executable.devices};
  const auto device = static_cast<uint32_t>(args.execute_device->description.id);
  GANGWAY_ASSIGN_OR_RETURN(const ExecutableHandle handle, executable.portable->For(device));
  return Target{handle, std::span<PJRT_Device* const>(&args.execute_device, 1)};
}

bool IsKept(const PJRT_ExecuteOptions* options, uint32_t index) {
  if (options == nullptr || options->num_non_donatable_input_indices == 0) return false;
  const int64_t* const begin = options->non_donatable_input_indices;
  return std::find(begin, begin + options->num_non_donatable_input_indices,
                   static_cast<int64_t>(index)) != begin + options->num_non_donatable_input_indices;
}

// The shards of the arguments that a call donates. It takes them out of their buffers first, so that no other argument
// and no other call can have them; they return unless the call is submitted.
class Donated {
 public:
  Donated() = default;
  ~Donated() {
    for (Taken& taken : taken_) taken.buffer->PutBack(std::move(taken.shard));
  }
  Donated(const Donated&) = delete;
  Donated& operator=(const Donated&) = delete;

  absl::Status TakeAll(const PJRT_LoadedExecutable_Execute_Args& args) {
    for (uint32_t index : args.executable->program->info->donated) {
      if (index >= args.num_args || IsKept(args.options, index)) continue;
      first_.resize(args.num_args, kNone);
      first_[index] = taken_.size();
      for (size_t i = 0; i < args.num_devices; ++i) {
        PJRT_Buffer* const buffer = args.argument_lists[i][index];
        GANGWAY_RETURN_IF_ERROR(Need(buffer, "a donated argument"));
        std::shared_ptr<Shard> shard = buffer->Take();
        if (shard == nullptr) return WhyGone(index, buffer);
        taken_.push_back({buffer, std::move(shard)});
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Shard>> ShardOf(uint32_t index, size_t device,
                                                 const PJRT_Buffer* buffer) const {
    if (Has(index)) return taken_[first_[index] + device].shard;
    GANGWAY_RETURN_IF_ERROR(Need(buffer, "an argument"));
    std::shared_ptr<Shard> shard = buffer->Find();
    if (shard == nullptr) return WhyGone(index, buffer);
    return shard;
  }

  bool Has(uint32_t index) const { return !first_.empty() && first_[index] != kNone; }

  // They are the cluster's.
  void Submitted() { taken_.clear(); }

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Taken {
    PJRT_Buffer* buffer;
    std::shared_ptr<Shard> shard;
  };

  absl::Status WhyGone(uint32_t index, const PJRT_Buffer* buffer) const {
    const bool is_ours = std::any_of(taken_.begin(), taken_.end(), [buffer](const Taken& taken) {
      return taken.buffer == buffer;
    });
    if (!is_ours) return AddContext(Deleted(), absl::StrCat("argument ", index));
    return absl::InvalidArgumentError(absl::StrCat(
        "argument ", index,
        " is also another argument of this call, which donates it: pass a copy (x.copy())"));
  }

  std::vector<Taken> taken_;   // by argument, then device
  std::vector<size_t> first_;  // of an argument, in taken_; empty if none is donated
};

absl::Status AddArgument(const PJRT_LoadedExecutable_Execute_Args& args, const Target& target,
                         uint32_t index, const Donated& donated, Arguments& arguments) {
  const size_t first = arguments.shards.size();
  bool is_whole = true;
  for (size_t i = 0; i < args.num_devices; ++i) {
    const PJRT_Buffer* const buffer = args.argument_lists[i][index];
    GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<Shard> shard, donated.ShardOf(index, i, buffer));
    const PJRT_Device* const device = target.devices[i];
    if (buffer->memory->device != device) {
      GANGWAY_RETURN_IF_ERROR(CheckOwner(args.executable->client, buffer->memory->device));
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", index, " is on ", buffer->memory->device->description.text,
                       ", the program runs on ", device->description.text,
                       " at this place: move it there (jax.device_put)"));
    }
    const Array& array = shard->array();
    is_whole &= shard->index() == i && array.shard_count() == args.num_devices &&
                (i == 0 || &array == &arguments.shards[first]->array());
    arguments.shards.push_back(std::move(shard));
  }
  arguments.arrays.push_back(is_whole ? arguments.shards[first]->array().handle() : ArrayHandle());
  return absl::OkStatus();
}

// The arguments that are not one array: as the array that was made of their list, or else as the list.
void NameLists(const PJRT_Client& client, size_t devices, const Donated& donated,
               Arguments& arguments) {
  std::vector<uint32_t> indices;  // of these arguments
  for (uint32_t i = 0; i < arguments.arrays.size(); ++i)
    if (arguments.arrays[i] == ArrayHandle()) indices.push_back(i);
  if (indices.empty()) return;
  std::vector<ShardOf> names;
  names.reserve(indices.size() * devices);  // which the lists refer to
  std::vector<GatheredCache::List> lists;
  lists.reserve(indices.size());
  for (uint32_t index : indices) {
    const size_t first = names.size();
    for (size_t i = 0; i < devices; ++i)
      names.push_back(arguments.shards[index * devices + i]->name());
    lists.push_back({.shards = {&names[first], devices}, .is_donated = donated.Has(index)});
  }
  client.gathered->Name(lists);
  for (size_t l = 0; l < lists.size(); ++l) {
    GatheredCache::List& list = lists[l];
    if (list.array == nullptr) {
      arguments.gathered.push_back(
          {.index = indices[l], .shards = {list.shards.begin(), list.shards.end()}});
      continue;
    }
    arguments.arrays[indices[l]] = *list.array;
    if (list.is_new) {
      for (size_t i = 0; i < devices; ++i)
        arguments.shards[indices[l] * devices + i]->NoteGathered();
    }
    arguments.made.push_back(std::move(list.array));
  }
}

std::vector<uint32_t> KeptOf(const PJRT_LoadedExecutable_Execute_Args& args) {
  std::vector<uint32_t> kept;
  for (uint32_t index : args.executable->program->info->donated) {
    if (IsKept(args.options, index)) kept.push_back(index);
  }
  return kept;
}

absl::Status CheckDevices(const PJRT_LoadedExecutable_Execute_Args& args) {
  const PJRT_LoadedExecutable& executable = *args.executable;
  const bool is_portable = executable.portable != nullptr;
  if (is_portable) {
    GANGWAY_RETURN_IF_ERROR(
        Need(args.execute_device, "the device, which a call of a portable executable names"));
    if (args.execute_device->client != executable.client)
      return absl::InvalidArgumentError("the device is another client's");
  } else if (args.execute_device != nullptr &&
             (executable.devices.size() != 1 || executable.devices[0] != args.execute_device)) {
    return absl::UnimplementedError(
        "an execution cannot run on other devices than its executable was compiled for");
  }
  const size_t count = is_portable ? 1 : executable.devices.size();
  if (args.num_devices == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("arguments for ", args.num_devices, " devices, the program runs on ", count));
}

absl::Status CheckOptions(const PJRT_ExecuteOptions* options) {
  if (options == nullptr) return absl::OkStatus();
  GANGWAY_RETURN_IF_ERROR(NeedSize(
      options->struct_size, PJRT_STRUCT_SIZE(PJRT_ExecuteOptions, num_non_donatable_input_indices),
      "the struct of the options"));
  if (options->num_send_ops > 0 || options->num_recv_ops > 0)
    return absl::UnimplementedError("send and receive callbacks are not known");
  if (options->num_non_donatable_input_indices == 0) return absl::OkStatus();
  return Need(options->non_donatable_input_indices, "the list of non-donatable arguments");
}

// One list per device.
template <typename List>
absl::Status CheckLists(const List* lists, size_t count, const char* what) {
  bool are_there = lists != nullptr;
  for (size_t i = 0; are_there && i < count; ++i) are_there = lists[i] != nullptr;
  if (are_there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " are null, or one of them is"));
}

absl::Status CheckCall(const PJRT_LoadedExecutable_Execute_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.executable, kExecutable));
  const PJRT_LoadedExecutable& executable = *args.executable;
  if (executable.deleted) return absl::InvalidArgumentError("the executable was deleted");
  GANGWAY_RETURN_IF_ERROR(CheckDevices(args));
  const size_t expected = executable.program->info->parameters.size();
  if (args.num_args != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(args.num_args, " arguments, the program takes ", expected));
  }
  GANGWAY_RETURN_IF_ERROR(CheckOptions(args.options));
  if (args.num_args > 0)
    GANGWAY_RETURN_IF_ERROR(CheckLists(args.argument_lists, args.num_devices, "argument lists"));
  if (executable.program->results.empty()) return absl::OkStatus();
  return CheckLists(args.output_lists, args.num_devices, "lists for the results");
}

void DropFromCluster(const PJRT_LoadedExecutable& executable) {
  if (executable.portable != nullptr) return executable.portable->Drop();
  executable.drops->Executable(executable.handle);
}

}  // namespace

absl::Status LoadedExecute(PJRT_LoadedExecutable_Execute_Args& args) {
  GANGWAY_RETURN_IF_ERROR(CheckCall(args));
  const PJRT_LoadedExecutable& executable = *args.executable;
  const Program& program = *executable.program;
  Client* const client = executable.client->session.get();
  GANGWAY_ASSIGN_OR_RETURN(const Target target, TargetOf(args));
  AwaitRoom(client);
  Donated donated;
  GANGWAY_RETURN_IF_ERROR(donated.TakeAll(args));
  Arguments arguments;
  arguments.shards.reserve(args.num_args * args.num_devices);
  for (size_t i = 0; i < args.num_args; ++i)
    GANGWAY_RETURN_IF_ERROR(
        AddArgument(args, target, static_cast<uint32_t>(i), donated, arguments));
  NameLists(*executable.client, args.num_devices, donated, arguments);
  const auto count = static_cast<uint32_t>(args.num_devices);
  auto over = std::make_shared<Outcome>(client);  // the end of the call
  std::vector<std::shared_ptr<Array>> results;
  std::vector<ArrayHandle> outputs;
  for (size_t i = 0; i < program.results.size(); ++i) {
    outputs.push_back(client->NewArrayHandle());
    results.push_back(
        std::make_shared<Array>(client, executable.client->drops, outputs.back(), count, over));
  }
  const std::vector<uint32_t> kept = KeptOf(args);
  CallOptions options{.keep = kept, .gathered = arguments.gathered};
  if (args.options != nullptr) options.launch_id = static_cast<uint32_t>(args.options->launch_id);
  options.ended = [over](const absl::Status& status) { over->Set(status); };
  over->SetOperation(
      client->Call(target.executable, arguments.arrays, outputs, std::move(options)));
  donated.Submitted();
  // JAX subscribes to the completion of every call. It makes a script wait for that only where the program has effects,
  // which are calls of the host; for all else it asks the results.
  const auto subscription =
      program.info->calls_host ? Outcome::Wanted::kAtOnce : Outcome::Wanted::kLate;
  for (uint32_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < results.size(); ++r) {
      args.output_lists[i][r] = NewBuffer(target.devices[i]->memories[program.result_kinds[r]],
                                          program.results[r], results[r], i);
    }
    if (args.device_complete_events != nullptr)
      args.device_complete_events[i] = NewEvent(over, subscription);
  }
  return absl::OkStatus();
}

absl::Status LoadedDestroy(PJRT_LoadedExecutable_Destroy_Args& args) {
  const std::unique_ptr<PJRT_LoadedExecutable> executable(args.executable);
  if (executable == nullptr || executable->deleted) return absl::OkStatus();
  DropFromCluster(*executable);
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
  if (executable.portable != nullptr)
    return absl::FailedPreconditionError("a portable executable is assigned to no device");
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
  DropFromCluster(*args.executable);
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
