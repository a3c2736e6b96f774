// Implementation of pjrt_client.h.
#include "gangway/device/pjrt/pjrt_client.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "gangway/base/status.h"

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

Attribute ToAttribute(const PJRT_NamedValue& named) {
  Attribute attribute{.name = std::string(named.name, named.name_size), .value = {}};
  switch (named.type) {
    case PJRT_NamedValue_kString:
      attribute.value = std::string(named.string_value, named.value_size);
      break;
    case PJRT_NamedValue_kInt64:
      attribute.value = named.int64_value;
      break;
    case PJRT_NamedValue_kInt64List:
      attribute.value =
          std::vector<int64_t>(named.int64_array_value, named.int64_array_value + named.value_size);
      break;
    case PJRT_NamedValue_kFloat:
      attribute.value = named.float_value;
      break;
    case PJRT_NamedValue_kBool:
      attribute.value = named.bool_value;
      break;
  }
  return attribute;
}

using Options = decltype(PjrtOptions::client_options);

// PJRT_Client_Create, with its exceptions as statuses: XLA CPU throws std::bad_variant_access for a
// client option of the wrong type.
absl::StatusOr<PJRT_Client*> CreateClient(const PjrtApi& api, const Options& options) {
  std::vector<PJRT_NamedValue> named;
  for (const auto& [name, value] : options) named.push_back(NamedValue(name, value));
  PJRT_Client_Create_Args args{};
  args.create_options = named.data();
  args.num_options = named.size();
  try {
    GANGWAY_RETURN_IF_ERROR(api.Call(&PJRT_Api::PJRT_Client_Create, args));
    return args.client;
  } catch (const std::exception& thrown) {
    return absl::InvalidArgumentError(
        absl::StrCat("it threw '", thrown.what(), "', as it does for an option of a wrong type"));
  }
}

absl::Status NoShare(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(why,
                   ". --device-memory-fraction and --no-preallocate are for plugins that take a "
                   "device's memory in advance, as CUDA's; --memory limits the others"));
}

// In the message of XLA's CUDA client for a machine without a GPU, or with none that it may use.
constexpr absl::string_view kNoGpu = "No visible GPU";

std::string NoGpuAdvice() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return absl::StrCat(
      "Check that `nvidia-smi` lists a GPU on this machine, that its driver is as new as this "
      "plugin's CUDA needs, and that CUDA_VISIBLE_DEVICES (here ",
      visible == nullptr ? "not set" : absl::StrCat("\"", visible, "\""),
      ") does not hide it; without a GPU, use the plugin for CPU devices: --plugin cpu");
}

// Options depend on the platform, which only a created client can report. A plugin rejects an
// unknown option with INVALID_ARGUMENT before it touches a device (observed: CUDA 0.112). So this
// tries the option of XLA CPU, then that of CUDA, then neither.
absl::StatusOr<PJRT_Client*> CreateAnyClient(const PjrtApi& api, const PjrtOptions& options) {
  std::vector<Options> offers;
  if (options.memory.chosen()) {
    Options memory = {{"preallocate", options.memory.preallocate && !options.compiles_only}};
    if (options.memory.fraction != 0)
      memory.emplace_back("memory_fraction", static_cast<float>(options.memory.fraction));
    absl::StatusOr<PJRT_Client*> created = CreateClient(api, memory);
    return absl::IsInvalidArgument(created.status()) ? NoShare(created.status().message())
                                                     : std::move(created);
  }
  if (options.device_count > 0)
    offers.push_back({{"cpu_device_count", int64_t{options.device_count}}});
  if (options.compiles_only) offers.push_back({{"preallocate", false}});
  offers.emplace_back();
  absl::StatusOr<PJRT_Client*> created = absl::UnknownError("");
  for (Options& offer : offers) {
    offer.insert(offer.begin(), options.client_options.begin(), options.client_options.end());
    created = CreateClient(api, offer);
    if (!absl::IsInvalidArgument(created.status())) break;
  }
  return created;
}

}  // namespace

absl::StatusOr<std::shared_ptr<PjrtClient>> PjrtClient::Open(const PjrtOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(const PjrtApi* api, PjrtApi::Load(options.plugin_path, options.nproc));
  absl::StatusOr<PJRT_Client*> created = CreateAnyClient(*api, options);
  if (!created.ok()) {
    const absl::string_view why = absl::StripSuffix(created.status().message(), ".");
    return absl::Status(
        created.status().code(),
        absl::StrCat("plugin ", options.plugin_path, " could not create its client: ", why, ". ",
                     absl::StrContains(why, kNoGpu)
                         ? NoGpuAdvice()
                         : "Check that its devices are free and its options valid"));
  }
  std::shared_ptr<PjrtClient> client(new PjrtClient(api, *created));
  GANGWAY_RETURN_IF_ERROR(client->ReadCapabilities());
  // XLA's older CPU plugin ignores options that it does not know.
  if (options.memory.chosen() && client->capabilities().platform == "cpu")
    return NoShare("CPU devices take memory when it is needed");
  GANGWAY_RETURN_IF_ERROR(client->ReadDevices());
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
  GANGWAY_RETURN_IF_ERROR(api_->Call(&PJRT_Api::PJRT_Client_PlatformName, name));
  PJRT_Client_PlatformVersion_Args version{};
  version.client = client_;
  GANGWAY_RETURN_IF_ERROR(api_->Call(&PJRT_Api::PJRT_Client_PlatformVersion, version));
  capabilities_.platform.assign(name.platform_name, name.platform_name_size);
  capabilities_.platform_version.assign(version.platform_version, version.platform_version_size);
  capabilities_.api_version = api_->version();
  const bool cpu = capabilities_.platform == "cpu";
  // 32 is the observed limit of XLA CPU. No plugin reports its limit, so other platforms get the
  // same bound.
  capabilities_.inflight_max = 32;
  capabilities_.executes_inline = cpu;
  capabilities_.collectives.block_threads = cpu;
  constexpr int kTakesNoTurnsMinor = 81;  // the newest that was seen to run them side by side
  capabilities_.collectives.take_turns =
      cpu && api_->table()->pjrt_api_version.minor_version > kTakesNoTurnsMinor;
  capabilities_.host_zero_copy = cpu;
  capabilities_.execute_waits_for_arguments = !cpu;  // CUDA: docs/internals/device-conformance.md
  capabilities_.pins_host_memory = !cpu && api_->table()->PJRT_Client_DmaMap != nullptr &&
                                   api_->table()->PJRT_Client_DmaUnmap != nullptr;
  const bool ffi = api_->FindExtension(PJRT_Extension_Type_FFI) != nullptr;
  using FfiHandlers = Capabilities::FfiHandlers;
  if (ffi && cpu) capabilities_.ffi_handlers = FfiHandlers::kHostMemory;
  if (ffi && capabilities_.platform == "cuda")
    capabilities_.ffi_handlers = FfiHandlers::kDeviceMemory;
  ReadAttributes();
  return absl::OkStatus();
}

// A plugin need not have any.
void PjrtClient::ReadAttributes() {
  if (api_->table()->PJRT_Plugin_Attributes == nullptr) return;
  PJRT_Plugin_Attributes_Args args{};
  if (!api_->Call(&PJRT_Api::PJRT_Plugin_Attributes, args).ok()) return;
  for (size_t i = 0; i < args.num_attributes; ++i)
    capabilities_.attributes.push_back(ToAttribute(args.attributes[i]));
}

absl::Status PjrtClient::ReadDevices() {
  PJRT_Client_AddressableDevices_Args devices{};
  devices.client = client_;
  GANGWAY_RETURN_IF_ERROR(api_->Call(&PJRT_Api::PJRT_Client_AddressableDevices, devices));
  if (devices.num_addressable_devices == 0) {
    return absl::FailedPreconditionError(
        "the plugin found no device; check the driver and the devices visible to it");
  }
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    GANGWAY_RETURN_IF_ERROR(ReadDevice(static_cast<int>(i), devices.addressable_devices[i]));
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
  GANGWAY_RETURN_IF_ERROR(status);

  Memories named;
  for (size_t i = 0; i < memories.num_memories; ++i) {
    GANGWAY_ASSIGN_OR_RETURN(std::string memory_kind, MemoryKind(memories.memories[i]));
    named.emplace_back(std::move(memory_kind), memories.memories[i]);
  }
  std::stable_partition(named.begin(), named.end(),
                        [&](const auto& entry) { return entry.second == default_memory.memory; });
  PJRT_DeviceDescription_Attributes_Args attributes{};  // a plugin need not have any
  attributes.device_description = description.device_description;
  (void)api_->Call(&PJRT_Api::PJRT_DeviceDescription_Attributes, attributes);

  DeviceInfo info{.local_index = local_index,
                  .runtime_id = id.id,
                  .kind = std::string(kind.device_kind, kind.device_kind_size),
                  .memory_kinds = {},
                  .attributes = {},
                  .memory_bytes = MemoryLimit(device)};
  for (const auto& entry : named) info.memory_kinds.push_back(entry.first);
  for (size_t i = 0; i < attributes.num_attributes; ++i)
    info.attributes.push_back(ToAttribute(attributes.attributes[i]));
  infos_.push_back(std::move(info));
  devices_.push_back(device);
  memories_.push_back(std::move(named));
  return absl::OkStatus();
}

// XLA's CPU plugin does not know it.
uint64_t PjrtClient::MemoryLimit(PJRT_Device* device) const {
  if (api_->table()->PJRT_Device_MemoryStats == nullptr) return 0;
  PJRT_Device_MemoryStats_Args stats{};
  stats.device = device;
  const absl::Status status = api_->Call(&PJRT_Api::PJRT_Device_MemoryStats, stats);
  if (!status.ok() || !stats.bytes_limit_is_set || stats.bytes_limit <= 0) return 0;
  return static_cast<uint64_t>(stats.bytes_limit);
}

absl::StatusOr<std::string> PjrtClient::MemoryKind(PJRT_Memory* memory) const {
  PJRT_Memory_Kind_Args kind{};
  kind.memory = memory;
  GANGWAY_RETURN_IF_ERROR(api_->Call(&PJRT_Api::PJRT_Memory_Kind, kind));
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
  GANGWAY_RETURN_IF_ERROR(Device(local_index));
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
