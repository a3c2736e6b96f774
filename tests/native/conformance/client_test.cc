// The table, the plugin, its client, and what it says of devices, memories and their topology.
#include <limits>
#include <set>
#include <type_traits>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::Contains;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ClientTest : public Conformance {};

// A getter of a text: fills `args`, and returns what the two fields say.
template <typename Args, typename Object>
std::string Text(PJRT_Error* (*function)(Args*), Object* Args::* object, const char* Args::* text,
                 size_t Args::* size, std::type_identity_t<Object>* of) {
  auto args = Make<Args>();
  args.*object = of;
  Do(function, args);
  return {args.*text, args.*size};
}

template <typename Args, typename Object, typename Value>
Value Get(PJRT_Error* (*function)(Args*), Object* Args::* object, Value Args::* value,
          std::type_identity_t<Object>* of) {
  auto args = Make<Args>();
  args.*object = of;
  Do(function, args);
  return args.*value;
}

int IdOf(PJRT_Device* device) {
  auto* const description =
      Get(Api().PJRT_Device_GetDescription, &PJRT_Device_GetDescription_Args::device,
          &PJRT_Device_GetDescription_Args::device_description, device);
  return Get(Api().PJRT_DeviceDescription_Id, &PJRT_DeviceDescription_Id_Args::device_description,
             &PJRT_DeviceDescription_Id_Args::id, description);
}

void CheckNamedValues(std::span<const PJRT_NamedValue> values) {
  for (const PJRT_NamedValue& value : values) {
    EXPECT_GE(value.struct_size, size_t{PJRT_NamedValue_STRUCT_SIZE});
    EXPECT_GT(value.name_size, 0u);
    EXPECT_GE(value.type, PJRT_NamedValue_kString);
    EXPECT_LE(value.type, PJRT_NamedValue_kBool);
    if (value.type != PJRT_NamedValue_kString && value.type != PJRT_NamedValue_kInt64List) {
      EXPECT_EQ(value.value_size, 1u) << value.name;
    }
  }
}

TEST(TableTest, IsOfTheHeadersVersionAndComplete) {
  EXPECT_EQ(RawApi().pjrt_api_version.major_version, PJRT_API_MAJOR);
  EXPECT_GE(RawApi().pjrt_api_version.minor_version, PJRT_API_MINOR);
  ASSERT_GE(RawApi().struct_size, size_t{PJRT_Api_STRUCT_SIZE});
#define CONFORMANCE_THERE(name) EXPECT_NE(RawApi().PJRT_##name, nullptr) << #name;
  CONFORMANCE_FUNCTIONS(CONFORMANCE_THERE)
#undef CONFORMANCE_THERE
}

TEST_F(ClientTest, PluginInitializesAndSaysItsVersions) {
  auto initialize = Make<PJRT_Plugin_Initialize_Args>();
  Do(Api().PJRT_Plugin_Initialize, initialize);
  Do(Api().PJRT_Plugin_Initialize, initialize);
  auto attributes = Make<PJRT_Plugin_Attributes_Args>();
  Do(Api().PJRT_Plugin_Attributes, attributes);
  const std::span all(attributes.attributes, attributes.num_attributes);
  CheckNamedValues(all);
  std::set<std::string> names;
  for (const PJRT_NamedValue& each : all) names.emplace(each.name, each.name_size);
  EXPECT_THAT(names, Contains("xla_version"));
  EXPECT_THAT(names, Contains("stablehlo_current_version"));
  EXPECT_THAT(names, Contains("stablehlo_minimum_version"));
}

TEST_F(ClientTest, SaysItsPlatformAndProcess) {
  using Name = PJRT_Client_PlatformName_Args;
  EXPECT_EQ(Text(Api().PJRT_Client_PlatformName, &Name::client, &Name::platform_name,
                 &Name::platform_name_size, client()),
            "cpu");
  using Version = PJRT_Client_PlatformVersion_Args;
  EXPECT_THAT(Text(Api().PJRT_Client_PlatformVersion, &Version::client, &Version::platform_version,
                   &Version::platform_version_size, client()),
              Not(IsEmpty()));
  EXPECT_EQ(Get(Api().PJRT_Client_ProcessIndex, &PJRT_Client_ProcessIndex_Args::client,
                &PJRT_Client_ProcessIndex_Args::process_index, client()),
            0);
}

TEST_F(ClientTest, AllDevicesAreAddressableAndFoundById) {
  auto all = Make<PJRT_Client_Devices_Args>();
  all.client = client();
  Do(Api().PJRT_Client_Devices, all);
  EXPECT_THAT(std::span(all.devices, all.num_devices), ElementsAreArray(devices_));
  std::set<int> ids;
  for (PJRT_Device* each : devices_) {
    ids.insert(IdOf(each));
    EXPECT_TRUE(Get(Api().PJRT_Device_IsAddressable, &PJRT_Device_IsAddressable_Args::device,
                    &PJRT_Device_IsAddressable_Args::is_addressable, each));
    auto lookup = Make<PJRT_Client_LookupDevice_Args>();
    lookup.client = client();
    lookup.id = IdOf(each);
    Do(Api().PJRT_Client_LookupDevice, lookup);
    EXPECT_EQ(lookup.device, each);
    auto local = Make<PJRT_Client_LookupAddressableDevice_Args>();
    local.client = client();
    local.local_hardware_id =
        Get(Api().PJRT_Device_LocalHardwareId, &PJRT_Device_LocalHardwareId_Args::device,
            &PJRT_Device_LocalHardwareId_Args::local_hardware_id, each);
    Do(Api().PJRT_Client_LookupAddressableDevice, local);
    EXPECT_EQ(local.addressable_device, each);
  }
  EXPECT_EQ(ids.size(), kDeviceCount);
}

TEST_F(ClientTest, UnknownDevicesAreErrors) {
  for (int id : {-1, 8, 12345, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    auto lookup = Make<PJRT_Client_LookupDevice_Args>();
    lookup.client = client();
    lookup.id = id;
    EXPECT_EQ(Ask(Api().PJRT_Client_LookupDevice, lookup).code, PJRT_Error_Code_INVALID_ARGUMENT);
    auto local = Make<PJRT_Client_LookupAddressableDevice_Args>();
    local.client = client();
    local.local_hardware_id = id;
    EXPECT_EQ(Ask(Api().PJRT_Client_LookupAddressableDevice, local).code,
              PJRT_Error_Code_INVALID_ARGUMENT);
  }
}

TEST_F(ClientTest, DescriptionsSayWhatADeviceIs) {
  std::set<std::string> texts;
  for (PJRT_Device* each : devices_) {
    auto* const description =
        Get(Api().PJRT_Device_GetDescription, &PJRT_Device_GetDescription_Args::device,
            &PJRT_Device_GetDescription_Args::device_description, each);
    using Process = PJRT_DeviceDescription_ProcessIndex_Args;
    EXPECT_EQ(Get(Api().PJRT_DeviceDescription_ProcessIndex, &Process::device_description,
                  &Process::process_index, description),
              0);
    using Kind = PJRT_DeviceDescription_Kind_Args;
    EXPECT_EQ(Text(Api().PJRT_DeviceDescription_Kind, &Kind::device_description, &Kind::device_kind,
                   &Kind::device_kind_size, description),
              "cpu");
    using Debug = PJRT_DeviceDescription_DebugString_Args;
    EXPECT_THAT(Text(Api().PJRT_DeviceDescription_DebugString, &Debug::device_description,
                     &Debug::debug_string, &Debug::debug_string_size, description),
                Not(IsEmpty()));
    using Name = PJRT_DeviceDescription_ToString_Args;
    const std::string text = Text(Api().PJRT_DeviceDescription_ToString, &Name::device_description,
                                  &Name::to_string, &Name::to_string_size, description);
    EXPECT_THAT(text, HasSubstr(std::to_string(IdOf(each))));
    texts.insert(text);
    auto attributes = Make<PJRT_DeviceDescription_Attributes_Args>();
    attributes.device_description = description;
    Do(Api().PJRT_DeviceDescription_Attributes, attributes);
    CheckNamedValues({attributes.attributes, attributes.num_attributes});
  }
  EXPECT_EQ(texts.size(), kDeviceCount);
}

TEST_F(ClientTest, EachDeviceHasThreeKindsOfMemory) {
  auto all = Make<PJRT_Client_AddressableMemories_Args>();
  all.client = client();
  Do(Api().PJRT_Client_AddressableMemories, all);
  const std::set<PJRT_Memory*> memories(all.addressable_memories,
                                        all.addressable_memories + all.num_addressable_memories);
  EXPECT_EQ(memories.size(), 3 * kDeviceCount);
  std::set<int> ids;
  for (PJRT_Device* each : devices_) {
    std::set<std::string> kinds;
    std::set<int> kind_ids;
    for (PJRT_Memory* memory : Memories(each)) {
      EXPECT_TRUE(memories.contains(memory));
      ids.insert(Get(Api().PJRT_Memory_Id, &PJRT_Memory_Id_Args::memory, &PJRT_Memory_Id_Args::id,
                     memory));
      kind_ids.insert(Get(Api().PJRT_Memory_Kind_Id, &PJRT_Memory_Kind_Id_Args::memory,
                          &PJRT_Memory_Kind_Id_Args::kind_id, memory));
      using Kind = PJRT_Memory_Kind_Args;
      kinds.insert(
          Text(Api().PJRT_Memory_Kind, &Kind::memory, &Kind::kind, &Kind::kind_size, memory));
      using Debug = PJRT_Memory_DebugString_Args;
      EXPECT_THAT(Text(Api().PJRT_Memory_DebugString, &Debug::memory, &Debug::debug_string,
                       &Debug::debug_string_size, memory),
                  Not(IsEmpty()));
      using Name = PJRT_Memory_ToString_Args;
      EXPECT_THAT(Text(Api().PJRT_Memory_ToString, &Name::memory, &Name::to_string,
                       &Name::to_string_size, memory),
                  Not(IsEmpty()));
      auto devices = Make<PJRT_Memory_AddressableByDevices_Args>();
      devices.memory = memory;
      Do(Api().PJRT_Memory_AddressableByDevices, devices);
      EXPECT_THAT(std::span(devices.devices, devices.num_devices), Contains(each));
    }
    EXPECT_THAT(kinds, testing::UnorderedElementsAre("device", "pinned_host", "unpinned_host"));
    EXPECT_EQ(kind_ids.size(), 3u);
    EXPECT_EQ(Get(Api().PJRT_Device_DefaultMemory, &PJRT_Device_DefaultMemory_Args::device,
                  &PJRT_Device_DefaultMemory_Args::memory, each),
              Memory(each, "device"));
  }
  EXPECT_EQ(ids.size(), 3 * kDeviceCount);
}

TEST_F(ClientTest, MemoryStatisticsOfADevice) {
  const Buffer held = Upload(std::vector<uint8_t>(1 << 20));
  ASSERT_TRUE(Ready(held).ok());
  auto stats = Make<PJRT_Device_MemoryStats_Args>();
  stats.device = device();
  ASSERT_EQ(Ask(Api().PJRT_Device_MemoryStats, stats).code, Expected(Topic::kMemoryStats));
  if (!IsGangway()) return;
  EXPECT_GE(stats.bytes_in_use, 1 << 20);
  EXPECT_TRUE(stats.peak_bytes_in_use_is_set);
  EXPECT_GE(stats.peak_bytes_in_use, stats.bytes_in_use);
}

Said Assign(PJRT_Client* client, int replicas, int partitions, std::vector<int>& to) {
  auto args = Make<PJRT_Client_DefaultDeviceAssignment_Args>();
  args.client = client;
  args.num_replicas = replicas;
  args.num_partitions = partitions;
  args.default_assignment_size = to.size();
  args.default_assignment = to.data();
  return Ask(Api().PJRT_Client_DefaultDeviceAssignment, args);
}

TEST_F(ClientTest, DefaultAssignmentsNameDifferentDevices) {
  for (const auto& [replicas, partitions] : {std::pair{1, 1}, {2, 3}, {8, 1}, {1, 8}}) {
    std::vector<int> assigned(static_cast<size_t>(replicas) * partitions, -1);
    ASSERT_TRUE(Assign(client(), replicas, partitions, assigned).ok());
    EXPECT_EQ(std::set<int>(assigned.begin(), assigned.end()).size(), assigned.size());
  }
  std::vector<int> small(3);
  EXPECT_EQ(Assign(client(), 2, 2, small).code, Expected(Topic::kAssignmentTooSmall));
  std::vector<int> many(9);
  EXPECT_EQ(Assign(client(), 9, 1, many).code, Expected(Topic::kTooManyReplicas));
}

TEST_F(ClientTest, TopologyIsTheClientsDevices) {
  auto* const topology =
      Get(Api().PJRT_Client_TopologyDescription, &PJRT_Client_TopologyDescription_Args::client,
          &PJRT_Client_TopologyDescription_Args::topology, client());
  using Name = PJRT_TopologyDescription_PlatformName_Args;
  EXPECT_EQ(Text(Api().PJRT_TopologyDescription_PlatformName, &Name::topology, &Name::platform_name,
                 &Name::platform_name_size, topology),
            "cpu");
  using Version = PJRT_TopologyDescription_PlatformVersion_Args;
  EXPECT_THAT(Text(Api().PJRT_TopologyDescription_PlatformVersion, &Version::topology,
                   &Version::platform_version, &Version::platform_version_size, topology),
              Not(IsEmpty()));
  auto devices = Make<PJRT_TopologyDescription_GetDeviceDescriptions_Args>();
  devices.topology = topology;
  Do(Api().PJRT_TopologyDescription_GetDeviceDescriptions, devices);
  EXPECT_EQ(devices.num_descriptions, kDeviceCount);
  for (size_t i = 0; i < devices.num_descriptions; ++i) {
    EXPECT_EQ(
        Get(Api().PJRT_DeviceDescription_Id, &PJRT_DeviceDescription_Id_Args::device_description,
            &PJRT_DeviceDescription_Id_Args::id, devices.descriptions[i]),
        IdOf(device(i)));
  }
  auto attributes = Make<PJRT_TopologyDescription_Attributes_Args>();
  attributes.topology = topology;
  Do(Api().PJRT_TopologyDescription_Attributes, attributes);
  CheckNamedValues({attributes.attributes, attributes.num_attributes});
}

TEST_F(ClientTest, TopologiesAreSerializedAlikeAndNotMade) {
  auto* const topology =
      Get(Api().PJRT_Client_TopologyDescription, &PJRT_Client_TopologyDescription_Args::client,
          &PJRT_Client_TopologyDescription_Args::topology, client());
  auto serialize = Make<PJRT_TopologyDescription_Serialize_Args>();
  serialize.topology = topology;
  Do(Api().PJRT_TopologyDescription_Serialize, serialize);
  EXPECT_GT(serialize.serialized_bytes_size, 0u);
  auto again = Make<PJRT_TopologyDescription_Serialize_Args>();
  again.topology = topology;
  Do(Api().PJRT_TopologyDescription_Serialize, again);
  EXPECT_EQ(std::string(serialize.serialized_bytes, serialize.serialized_bytes_size),
            std::string(again.serialized_bytes, again.serialized_bytes_size));

  auto read = Make<PJRT_TopologyDescription_Deserialize_Args>();
  read.serialized_topology = serialize.serialized_bytes;
  read.serialized_topology_size = serialize.serialized_bytes_size;
  const Said said = Ask(Api().PJRT_TopologyDescription_Deserialize, read);
  EXPECT_EQ(said.code, Expected(Topic::kTopologyDeserialize)) << said.message;
  serialize.serialized_topology_deleter(serialize.serialized_topology);
  again.serialized_topology_deleter(again.serialized_topology);

  auto create = Make<PJRT_TopologyDescription_Create_Args>();
  create.topology_name = "";
  const Said made = Ask(Api().PJRT_TopologyDescription_Create, create);
  EXPECT_EQ(made.code, PJRT_Error_Code_UNIMPLEMENTED) << made.message;

  // The client's own is not to be destroyed, so a topology that a plugin cannot make is never.
  auto destroy = Make<PJRT_TopologyDescription_Destroy_Args>();
  destroy.topology = said.ok() ? read.topology : nullptr;
  Do(Api().PJRT_TopologyDescription_Destroy, destroy);
}

TEST_F(ClientTest, ProcessesOfTheFrameworkMayBeTold) {
  auto process = Make<PJRT_ProcessInfo>();
  process.state = PJRT_ProcessState_kConnected;
  auto update = Make<PJRT_Client_UpdateGlobalProcessInfo_Args>();
  update.client = client();
  update.process_infos = &process;
  update.num_process_infos = 1;
  const Said said = Ask(Api().PJRT_Client_UpdateGlobalProcessInfo, update);
  EXPECT_EQ(said.code, PJRT_Error_Code_OK) << said.message;
}

TEST_F(ClientTest, HostMemoryIsNotMappedForADevice) {
  alignas(4096) static char bytes[4096];
  auto map = Make<PJRT_Client_DmaMap_Args>();
  map.client = client();
  map.data = bytes;
  map.size = sizeof(bytes);
  const Said mapped = Ask(Api().PJRT_Client_DmaMap, map);
  EXPECT_EQ(mapped.code, Expected(Topic::kDmaMap)) << mapped.message;
  auto unmap = Make<PJRT_Client_DmaUnmap_Args>();
  unmap.client = client();
  unmap.data = bytes;
  const Said unmapped = Ask(Api().PJRT_Client_DmaUnmap, unmap);
  EXPECT_EQ(unmapped.code, Expected(Topic::kDmaMap)) << unmapped.message;
}

TEST_F(ClientTest, TwoClientsLiveInOneProcess) {
  const Client other = NewClient();
  ASSERT_NE(other, nullptr);
  auto devices = Make<PJRT_Client_Devices_Args>();
  devices.client = other.get();
  Do(Api().PJRT_Client_Devices, devices);
  ASSERT_EQ(devices.num_devices, kDeviceCount);
  EXPECT_NE(devices.devices[0], device());
}

PJRT_NamedValue TextOption(const char* name, const char* value) {
  auto named = Make<PJRT_NamedValue>();
  named.name = name;
  named.name_size = std::strlen(name);
  named.type = PJRT_NamedValue_kString;
  named.string_value = value;
  named.value_size = std::strlen(value);
  return named;
}

TEST(CreateTest, UnknownOptions) {
  const PJRT_NamedValue option = TextOption("adress", "unix:/x");
  auto create = Make<PJRT_Client_Create_Args>();
  create.create_options = &option;
  create.num_options = 1;
  const Said said = Ask(Api().PJRT_Client_Create, create);
  EXPECT_EQ(said.code, Expected(Topic::kUnknownOption)) << said.message;
  if (said.ok()) Client(create.client).reset();
}

}  // namespace
}  // namespace conformance
