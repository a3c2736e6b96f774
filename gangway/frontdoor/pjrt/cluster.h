// The cluster as the C API shows it: one PJRT_Client per session, its devices and memories, and their descriptions.
//
// Threading: any thread; all of it is constant once the client is made. Failure: a lost session fails what is asked of
// it, with the cluster's own error; nothing here ends the process.
#ifndef GANGWAY_FRONTDOOR_PJRT_CLUSTER_H_
#define GANGWAY_FRONTDOOR_PJRT_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

#include "gangway/base/fork.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/pjrt/drops.h"
#include "gangway/frontdoor/pjrt/gathered_cache.h"

struct PJRT_Memory {
  int id = 0;
  int kind = 0;  // index of gangway::kMemoryKinds
  PJRT_Device* device = nullptr;
  std::string text;
};

struct PJRT_DeviceDescription {
  int id = 0;
  std::string kind, text, debug_text;
  std::vector<PJRT_NamedValue> attributes;  // with texts of `told`
  std::vector<gangway::PluginAttribute> told;
};

struct PJRT_Device {
  PJRT_Client* client = nullptr;
  PJRT_DeviceDescription description;
  std::vector<PJRT_Memory*> memories;  // the default one first
};

struct PJRT_TopologyDescription {
  std::string platform, version;
  std::vector<PJRT_DeviceDescription*> devices;
};

// Outlives all use of what was made with it, as the C API asks of its callers; that may be destroyed later (drops.h).
struct PJRT_Client {
  const uint64_t fork_generation = gangway::ForkGeneration();
  std::unique_ptr<gangway::Client> session;
  std::unique_ptr<gangway::pjrt::GatheredCache> gathered;
  std::shared_ptr<gangway::pjrt::Drops> drops;  // of the session
  std::deque<PJRT_Device> device_store;         // by id
  std::deque<PJRT_Memory> memory_store;
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_Memory*> memories;
  PJRT_TopologyDescription topology;
};

namespace gangway::pjrt {

// A client of this session, with its devices.
std::unique_ptr<PJRT_Client> NewClient(std::unique_ptr<Client> session);

// Makes an array of each list of shards (GatheredCache::Gather).
std::vector<GatheredArray> Gather(const PJRT_Client& client,
                                  std::vector<std::vector<ShardOf>> lists);

// The device or the memory of a caller's request; the memory's device, if both are given. INVALID_ARGUMENT: neither,
// they disagree, or they are another client's.
absl::StatusOr<PJRT_Memory*> MemoryOf(const PJRT_Client* client, PJRT_Device* device,
                                      PJRT_Memory* memory);

// INVALID_ARGUMENT: the device is another client's.
absl::Status CheckOwner(const PJRT_Client* client, const PJRT_Device* device);

// Null: no device has this id.
PJRT_Device* FindDevice(const PJRT_Client& client, int64_t id);

// Makes PJRT_Plugin_Attributes tell what the workers' plugin reads. Attributes about abilities of the workers' plugin
// itself are left out, since this plugin is another.
void TellAttributes(const ClusterInfo& cluster);

absl::Status PluginInitialize(PJRT_Plugin_Initialize_Args& args);
absl::Status PluginAttributes(PJRT_Plugin_Attributes_Args& args);
absl::Status ClientCreate(PJRT_Client_Create_Args& args);
absl::Status ClientDestroy(PJRT_Client_Destroy_Args& args);
absl::Status ClientPlatformName(PJRT_Client_PlatformName_Args& args);
absl::Status ClientProcessIndex(PJRT_Client_ProcessIndex_Args& args);
absl::Status ClientUpdateProcesses(PJRT_Client_UpdateGlobalProcessInfo_Args& args);
absl::Status ClientPlatformVersion(PJRT_Client_PlatformVersion_Args& args);
absl::Status ClientTopology(PJRT_Client_TopologyDescription_Args& args);
absl::Status ClientDevices(PJRT_Client_Devices_Args& args);
absl::Status ClientAddressableDevices(PJRT_Client_AddressableDevices_Args& args);
absl::Status ClientLookupDevice(PJRT_Client_LookupDevice_Args& args);
absl::Status ClientLookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args& args);
absl::Status ClientAddressableMemories(PJRT_Client_AddressableMemories_Args& args);
absl::Status ClientDefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args& args);

absl::Status DescriptionId(PJRT_DeviceDescription_Id_Args& args);
absl::Status DescriptionProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args& args);
absl::Status DescriptionAttributes(PJRT_DeviceDescription_Attributes_Args& args);
absl::Status DescriptionKind(PJRT_DeviceDescription_Kind_Args& args);
absl::Status DescriptionDebugString(PJRT_DeviceDescription_DebugString_Args& args);
absl::Status DescriptionToString(PJRT_DeviceDescription_ToString_Args& args);

absl::Status DeviceDescription(PJRT_Device_GetDescription_Args& args);
absl::Status DeviceIsAddressable(PJRT_Device_IsAddressable_Args& args);
absl::Status DeviceLocalHardwareId(PJRT_Device_LocalHardwareId_Args& args);
absl::Status DeviceMemories(PJRT_Device_AddressableMemories_Args& args);
absl::Status DeviceMemoryStats(PJRT_Device_MemoryStats_Args& args);
absl::Status DeviceDefaultMemory(PJRT_Device_DefaultMemory_Args& args);

absl::Status MemoryIdOf(PJRT_Memory_Id_Args& args);
absl::Status MemoryKind(PJRT_Memory_Kind_Args& args);
absl::Status MemoryKindId(PJRT_Memory_Kind_Id_Args& args);
absl::Status MemoryDebugString(PJRT_Memory_DebugString_Args& args);
absl::Status MemoryToString(PJRT_Memory_ToString_Args& args);
absl::Status MemoryDevices(PJRT_Memory_AddressableByDevices_Args& args);

absl::Status TopologyDestroy(PJRT_TopologyDescription_Destroy_Args& args);
absl::Status TopologyPlatformName(PJRT_TopologyDescription_PlatformName_Args& args);
absl::Status TopologyPlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args& args);
absl::Status TopologyDevices(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args);
absl::Status TopologyAttributes(PJRT_TopologyDescription_Attributes_Args& args);
absl::Status TopologySerialize(PJRT_TopologyDescription_Serialize_Args& args);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_CLUSTER_H_
