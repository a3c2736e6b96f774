// The PJRT_Client: how a session begins and ends, and what it says of the cluster. Devices and memories: devices.cc.
#include "gangway/frontdoor/pjrt/cluster.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/callbacks.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/extensions.h"
#include "gangway/frontdoor/pjrt/options.h"
#include "gangway/frontdoor/pjrt/process_clients.h"
#include "gangway/frontdoor/program_devices.h"

struct PJRT_SerializedTopology {
  std::string bytes;
};

namespace gangway::pjrt {
namespace {

constexpr char kClient[] = "the client", kTopology[] = "the topology";

constexpr const char* kSliceIndex = "slice_index";
constexpr const char* kWorkerIndex = "worker_index";

PJRT_NamedValue Named(const char* name, int64_t value) {
  PJRT_NamedValue named{};
  named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  named.name = name;
  named.name_size = std::char_traits<char>::length(name);
  named.type = PJRT_NamedValue_kInt64;
  named.int64_value = value;
  named.value_size = 1;
  return named;
}

void AddDevice(const DeviceInfo& info, PJRT_Client& client) {
  PJRT_Device& device = client.device_store.emplace_back();
  device.client = &client;
  PJRT_DeviceDescription& description = device.description;
  description.id = static_cast<int>(info.id);
  description.kind = info.kind;
  description.text = absl::StrCat("GangwayDevice(id=", info.id, ")");
  description.debug_text = absl::StrCat("GangwayDevice(id=", info.id, ", island ", info.island,
                                        ", worker ", info.worker, ", index ", info.index, ")");
  description.attributes = {Named(kSliceIndex, info.island), Named(kWorkerIndex, info.worker)};
  description.told = info.attributes;
  for (const PluginAttribute& attribute : description.told) {
    if (attribute.name == kSliceIndex || attribute.name == kWorkerIndex) continue;
    PJRT_NamedValue named = Named(attribute.name.c_str(), 0);
    if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      named.type = PJRT_NamedValue_kString;
      named.string_value = text->c_str();
      named.value_size = text->size();
    } else if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
      named.int64_value = *number;
    } else {
      continue;
    }
    description.attributes.push_back(named);
  }
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    PJRT_Memory& memory = client.memory_store.emplace_back();
    memory.id = MemoryId(info.id, kind);
    memory.kind = kind;
    memory.device = &device;
    memory.text =
        absl::StrCat("GangwayMemory(", kMemoryKinds[kind], ", device ", description.id, ")");
    device.memories.push_back(&memory);
    client.memories.push_back(&memory);
  }
  client.devices.push_back(&device);
  client.topology.devices.push_back(&description);
}

}  // namespace

PJRT_Device* FindDevice(const PJRT_Client& client, int64_t id) {
  const auto found =
      std::find_if(client.devices.begin(), client.devices.end(),
                   [id](PJRT_Device* device) { return device->description.id == id; });
  return found == client.devices.end() ? nullptr : *found;
}

std::vector<GatheredArray> Gather(const PJRT_Client& client,
                                  std::vector<std::vector<ShardOf>> lists) {
  std::vector<GatheredArray> arrays;
  std::vector<Client::Regrouped> regrouped;
  for (std::vector<ShardOf>& shards : lists) {
    const ArrayHandle handle = client.session->NewArrayHandle();
    regrouped.push_back({.array = handle, .shards = std::move(shards)});
    arrays.emplace_back(new ArrayHandle(handle), [drops = client.drops](const ArrayHandle* last) {
      const std::unique_ptr<const ArrayHandle> dropped(last);
      drops->Array(*dropped);
    });
  }
  client.session->Regroup(std::move(regrouped));
  return arrays;
}

std::unique_ptr<PJRT_Client> NewClient(std::unique_ptr<Client> session) {
  auto client = std::make_unique<PJRT_Client>();
  client->session = std::move(session);
  client->gathered = std::make_unique<GatheredCache>(
      [client = client.get()](std::vector<std::vector<ShardOf>> lists) {
        return Gather(*client, std::move(lists));
      });
  client->drops = std::make_shared<Drops>(client->session.get(), client->gathered.get());
  const ClusterInfo& cluster = client->session->cluster();
  client->topology.platform = cluster.platform;
  client->topology.version = cluster.platform_version;
  for (const DeviceInfo& info : cluster.devices) AddDevice(info, *client);
  return client;
}

absl::Status PluginInitialize(PJRT_Plugin_Initialize_Args&) { return absl::OkStatus(); }

absl::Status ClientCreate(PJRT_Client_Create_Args& args) {
  if (args.num_options > 0) GANGWAY_RETURN_IF_ERROR(Need(args.create_options, "the options"));
  GANGWAY_ASSIGN_OR_RETURN(const ClusterOptions options,
                           ReadOptions({args.create_options, args.num_options}));
  GANGWAY_ASSIGN_OR_RETURN(std::unique_ptr<Client> session, FromResult(ConnectClient(options)));
  session->EndLook();  // the outcomes look for theirs
  std::unique_ptr<PJRT_Client> client = NewClient(std::move(session));
  client->session->ServeHostCallbacks(HostFunctionsOfProcess());
  const ClusterInfo& cluster = client->session->cluster();
  if (!cluster.absent.empty()) {
    fprintf(stderr, "gangway: this session starts without %s: see `gangway status`\n",
            absl::StrJoin(cluster.absent, ", ").c_str());
  }
  TellAttributes(cluster);
  AddProcessClient(client.get());
  args.client = client.release();
  return absl::OkStatus();
}

absl::Status ClientDestroy(PJRT_Client_Destroy_Args& args) {
  // A forked child cannot end the threads of its parent's session.
  if (args.client != nullptr && args.client->fork_generation != ForkGeneration())
    return absl::OkStatus();
  RemoveProcessClient(args.client);
  const std::unique_ptr<PJRT_Client> client(args.client);
  if (client != nullptr) client->drops->Close();
  return absl::OkStatus();
}

absl::Status ClientPlatformName(PJRT_Client_PlatformName_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.platform_name = args.client->topology.platform.data();
  args.platform_name_size = args.client->topology.platform.size();
  return absl::OkStatus();
}

absl::Status ClientProcessIndex(PJRT_Client_ProcessIndex_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.process_index = 0;
  return absl::OkStatus();
}

// jax.distributed's processes: ReadOptions has seen that there is one. jaxlib ends the process if this fails.
absl::Status ClientUpdateProcesses(PJRT_Client_UpdateGlobalProcessInfo_Args& args) {
  return Need(args.client, kClient);
}

absl::Status ClientPlatformVersion(PJRT_Client_PlatformVersion_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.platform_version = args.client->topology.version.data();
  args.platform_version_size = args.client->topology.version.size();
  return absl::OkStatus();
}

absl::Status ClientTopology(PJRT_Client_TopologyDescription_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.topology = &args.client->topology;
  return absl::OkStatus();
}

absl::Status ClientDevices(PJRT_Client_Devices_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.devices = args.client->devices.data();
  args.num_devices = args.client->devices.size();
  return absl::OkStatus();
}

absl::Status ClientAddressableDevices(PJRT_Client_AddressableDevices_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.addressable_devices = args.client->devices.data();
  args.num_addressable_devices = args.client->devices.size();
  return absl::OkStatus();
}

absl::Status ClientLookupDevice(PJRT_Client_LookupDevice_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.device = FindDevice(*args.client, args.id);
  if (args.device != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no device of the cluster has the id ", args.id));
}

absl::Status ClientLookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.addressable_device = FindDevice(*args.client, args.local_hardware_id);
  if (args.addressable_device != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no device of the cluster has the hardware id ", args.local_hardware_id));
}

absl::Status ClientAddressableMemories(PJRT_Client_AddressableMemories_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  args.addressable_memories = args.client->memories.data();
  args.num_addressable_memories = args.client->memories.size();
  return absl::OkStatus();
}

absl::Status ClientDefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.client, kClient));
  GANGWAY_RETURN_IF_ERROR(Need(args.default_assignment, "the array for the assignment"));
  GANGWAY_ASSIGN_OR_RETURN(
      const std::vector<uint32_t> devices,
      FirstDevices(args.client->session->cluster(), args.num_replicas, args.num_partitions));
  if (devices.size() > args.default_assignment_size) {
    return absl::InvalidArgumentError(absl::StrCat("the array for the assignment has ",
                                                   args.default_assignment_size,
                                                   " places, needed: ", devices.size()));
  }
  std::copy(devices.begin(), devices.end(), args.default_assignment);
  return absl::OkStatus();
}

absl::Status TopologyDestroy(PJRT_TopologyDescription_Destroy_Args&) {
  return absl::OkStatus();  // each belongs to its client
}

absl::Status TopologyPlatformName(PJRT_TopologyDescription_PlatformName_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.topology, kTopology));
  args.platform_name = args.topology->platform.data();
  args.platform_name_size = args.topology->platform.size();
  return absl::OkStatus();
}

absl::Status TopologyPlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.topology, kTopology));
  args.platform_version = args.topology->version.data();
  args.platform_version_size = args.topology->version.size();
  return absl::OkStatus();
}

absl::Status TopologyDevices(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.topology, kTopology));
  args.descriptions = args.topology->devices.data();
  args.num_descriptions = args.topology->devices.size();
  return absl::OkStatus();
}

absl::Status TopologyAttributes(PJRT_TopologyDescription_Attributes_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.topology, kTopology));
  args.attributes = nullptr;
  args.num_attributes = 0;
  return absl::OkStatus();
}

// For cache keys: what a compiled program depends on.
absl::Status TopologySerialize(PJRT_TopologyDescription_Serialize_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.topology, kTopology));
  auto serialized = std::make_unique<PJRT_SerializedTopology>();
  serialized->bytes = absl::StrCat(args.topology->platform, "\n", args.topology->version);
  for (const PJRT_DeviceDescription* device : args.topology->devices)
    absl::StrAppend(&serialized->bytes, "\n", device->kind);
  args.serialized_bytes = serialized->bytes.data();
  args.serialized_bytes_size = serialized->bytes.size();
  args.serialized_topology_deleter = [](PJRT_SerializedTopology* done) { delete done; };
  args.serialized_topology = serialized.release();
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
