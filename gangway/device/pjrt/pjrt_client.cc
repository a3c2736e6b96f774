// Implementation of pjrt_client.h.
#include "gangway/device/pjrt/pjrt_client.h"

#include <algorithm>
#include <exception>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::device {
namespace {

PJRT_NamedValue NamedValue(const std::string& name,
                           const std::variant<int64_t, bool, float, std::string>& value) {
  PJRT_NamedValue named{};
  named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  named.name = name.data();
  named.name_size = name.size();
  named.value_size = 1;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    named.type = PJRT_NamedValue_kInt64;
    named.int64_value = *number;
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    named.type = PJRT_NamedValue_kBool;
    named.bool_value = *flag;
  } else if (const auto* real = std::get_if<float>(&value)) {
    named.type = PJRT_NamedValue_kFloat;
    named.float_value = *real;
  } else {
    const std::string& text = std::get<std::string>(value);
    named.type = PJRT_NamedValue_kString;
    named.string_value = text.data();
    named.value_size = text.size();
  }
  return named;
}

// PJRT_Client_Create, with its exceptions as statuses: XLA CPU throws std::bad_variant_access for a
// client option of the wrong type.
absl::Status CreateClient(const PjrtApi& api, PJRT_Client_Create_Args& args) {
  try {
    return api.Call(&PJRT_Api::PJRT_Client_Create, args);
  } catch (const std::exception& thrown) {
    return absl::InvalidArgumentError(
        absl::StrCat("it threw '", thrown.what(), "', as for a wrong type of an option"));
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<PjrtClient>> PjrtClient::Open(const PjrtOptions& options) {
  absl::StatusOr<const PjrtApi*> api = PjrtApi::Load(options.plugin_path, options.nproc);
  if (!api.ok()) return api.status();
  auto client_options = options.client_options;
  if (options.device_count > 0)
    client_options.emplace_back("cpu_device_count", int64_t{options.device_count});
  std::vector<PJRT_NamedValue> named;
  for (const auto& [name, value] : client_options) named.push_back(NamedValue(name, value));

  PJRT_Client_Create_Args create{};
  create.create_options = named.data();
  create.num_options = named.size();
  if (absl::Status status = CreateClient(**api, create); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("plugin ", options.plugin_path,
                                     " could not create its client: ", status.message(),
                                     ". Check that its devices are free and its options right"));
  }
  std::shared_ptr<PjrtClient> client(new PjrtClient(*api, create.client));
  if (absl::Status status = client->ReadCapabilities(); !status.ok()) return status;
  if (absl::Status status = client->ReadDevices(); !status.ok()) return status;
  return client;
}

PjrtClient::~PjrtClient() {
  PJRT_Client_Destroy_Args destroy{};
  destroy.client = client_;
  (void)api_->Call(&PJRT_Api::PJRT_Client_Destroy, destroy);
}

absl::Status PjrtClient::ReadCapabilities() {
  PJRT_Client_PlatformName_Args name{};
  name.client = client_;
  if (absl::Status status = api_->Call(&PJRT_Api::PJRT_Client_PlatformName, name); !status.ok())
    return status;
  PJRT_Client_PlatformVersion_Args version{};
  version.client = client_;
  if (absl::Status status = api_->Call(&PJRT_Api::PJRT_Client_PlatformVersion, version);
      !status.ok())
    return status;
  capabilities_.platform.assign(name.platform_name, name.platform_name_size);
  capabilities_.platform_version.assign(version.platform_version, version.platform_version_size);
  capabilities_.api_version = api_->version();
  const bool cpu = capabilities_.platform == "cpu";
  // 32 is XLA CPU's own limit, seen; no plugin says its limit, so other platforms get the same
  // bound.
  capabilities_.inflight_max = 32;
  capabilities_.executes_inline = cpu;
  capabilities_.host_zero_copy = cpu;
  capabilities_.ffi_handlers = cpu && api_->FindExtension(PJRT_Extension_Type_FFI) != nullptr;
  return absl::OkStatus();
}

absl::Status PjrtClient::ReadDevices() {
  PJRT_Client_AddressableDevices_Args devices{};
  devices.client = client_;
  if (absl::Status status = api_->Call(&PJRT_Api::PJRT_Client_AddressableDevices, devices);
      !status.ok()) {
    return status;
  }
  if (devices.num_addressable_devices == 0) {
    return absl::FailedPreconditionError(
        "the plugin found no device; check the driver and what it may see");
  }
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    absl::Status status = ReadDevice(static_cast<int>(i), devices.addressable_devices[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PjrtClient::ReadDevice(int local_index, PJRT_Device* device) {
  PJRT_Device_GetDescription_Args description{};
  description.device = device;
  absl::Status status = api_->Call(&PJRT_Api::PJRT_Device_GetDescription, description);
  PJRT_DeviceDescription_Id_Args id{};
  id.device_description = description.device_description;
  if (status.ok()) status = api_->Call(&PJRT_Api::PJRT_DeviceDescription_Id, id);
  PJRT_DeviceDescription_Kind_Args kind{};
  kind.device_description = description.device_description;
  if (status.ok()) status = api_->Call(&PJRT_Api::PJRT_DeviceDescription_Kind, kind);
  PJRT_Device_DefaultMemory_Args default_memory{};
  default_memory.device = device;
  if (status.ok()) status = api_->Call(&PJRT_Api::PJRT_Device_DefaultMemory, default_memory);
  PJRT_Device_AddressableMemories_Args memories{};
  memories.device = device;
  if (status.ok()) status = api_->Call(&PJRT_Api::PJRT_Device_AddressableMemories, memories);
  if (!status.ok()) return status;

  Memories named;
  for (size_t i = 0; i < memories.num_memories; ++i) {
    absl::StatusOr<std::string> memory_kind = MemoryKind(memories.memories[i]);
    if (!memory_kind.ok()) return memory_kind.status();
    named.emplace_back(*std::move(memory_kind), memories.memories[i]);
  }
  std::stable_partition(named.begin(), named.end(),
                        [&](const auto& entry) { return entry.second == default_memory.memory; });
  DeviceInfo info{local_index, id.id, std::string(kind.device_kind, kind.device_kind_size), {}};
  for (const auto& entry : named) info.memory_kinds.push_back(entry.first);
  infos_.push_back(std::move(info));
  devices_.push_back(device);
  memories_.push_back(std::move(named));
  return absl::OkStatus();
}

absl::StatusOr<std::string> PjrtClient::MemoryKind(PJRT_Memory* memory) const {
  PJRT_Memory_Kind_Args kind{};
  kind.memory = memory;
  if (absl::Status status = api_->Call(&PJRT_Api::PJRT_Memory_Kind, kind); !status.ok())
    return status;
  return std::string(kind.kind, kind.kind_size);
}

absl::StatusOr<PJRT_Device*> PjrtClient::Device(int local_index) const {
  if (local_index < 0 || local_index >= static_cast<int>(devices_.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no local device ", local_index, ": this runtime has devices 0 .. ", devices_.size() - 1));
  }
  return devices_[local_index];
}

absl::StatusOr<PJRT_Memory*> PjrtClient::Memory(int local_index, std::string_view kind) const {
  absl::StatusOr<PJRT_Device*> device = Device(local_index);
  if (!device.ok()) return device.status();
  const Memories& memories = memories_[local_index];
  if (kind.empty() && !memories.empty()) return memories.front().second;
  for (const auto& [name, memory] : memories) {
    if (name == kind) return memory;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device ", local_index, " has no memory kind '", std::string(kind), "'; it has ",
                   absl::StrJoin(infos_[local_index].memory_kinds, ", ")));
}

}  // namespace gangway::device
