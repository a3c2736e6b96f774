// What the C API says of devices, their descriptions and their memories (cluster.h).
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/error.h"

namespace gangway::pjrt {
namespace {

constexpr char kDevice[] = "the device", kDescription[] = "the device's description",
               kMemory[] = "the memory";

}  // namespace

absl::Status CheckOwner(const PJRT_Client* client, const PJRT_Device* device) {
  if (device->client == client) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(device->description.text, " is a device of another client"));
}

absl::StatusOr<PJRT_Memory*> MemoryOf(const PJRT_Client* client, PJRT_Device* device,
                                      PJRT_Memory* memory) {
  if (memory == nullptr) {
    GANGWAY_RETURN_IF_ERROR(Need(device, "the device, and the memory,"));
    memory = device->memories[0];
  }
  GANGWAY_RETURN_IF_ERROR(CheckOwner(client, memory->device));
  if (device != nullptr && memory->device != device) {
    return absl::InvalidArgumentError(
        absl::StrCat(memory->text, " is not a memory of device ", device->description.id));
  }
  return memory;
}

absl::Status DescriptionId(PJRT_DeviceDescription_Id_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.id = args.device_description->id;
  return absl::OkStatus();
}

absl::Status DescriptionProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.process_index = 0;
  return absl::OkStatus();
}

absl::Status DescriptionAttributes(PJRT_DeviceDescription_Attributes_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.attributes = args.device_description->attributes.data();
  args.num_attributes = args.device_description->attributes.size();
  return absl::OkStatus();
}

absl::Status DescriptionKind(PJRT_DeviceDescription_Kind_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.device_kind = args.device_description->kind.data();
  args.device_kind_size = args.device_description->kind.size();
  return absl::OkStatus();
}

absl::Status DescriptionDebugString(PJRT_DeviceDescription_DebugString_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.debug_string = args.device_description->debug_text.data();
  args.debug_string_size = args.device_description->debug_text.size();
  return absl::OkStatus();
}

absl::Status DescriptionToString(PJRT_DeviceDescription_ToString_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device_description, kDescription));
  args.to_string = args.device_description->text.data();
  args.to_string_size = args.device_description->text.size();
  return absl::OkStatus();
}

absl::Status DeviceDescription(PJRT_Device_GetDescription_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, kDevice));
  args.device_description = &args.device->description;
  return absl::OkStatus();
}

absl::Status DeviceIsAddressable(PJRT_Device_IsAddressable_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, kDevice));
  args.is_addressable = true;
  return absl::OkStatus();
}

absl::Status DeviceLocalHardwareId(PJRT_Device_LocalHardwareId_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, kDevice));
  args.local_hardware_id = args.device->description.id;
  return absl::OkStatus();
}

absl::Status DeviceMemories(PJRT_Device_AddressableMemories_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, kDevice));
  args.memories = args.device->memories.data();
  args.num_memories = args.device->memories.size();
  return absl::OkStatus();
}

absl::Status DeviceDefaultMemory(PJRT_Device_DefaultMemory_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, kDevice));
  args.memory = args.device->memories[0];
  return absl::OkStatus();
}

absl::Status MemoryIdOf(PJRT_Memory_Id_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.id = args.memory->id;
  return absl::OkStatus();
}

absl::Status MemoryKind(PJRT_Memory_Kind_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.kind = kMemoryKinds[args.memory->kind];
  args.kind_size = std::char_traits<char>::length(args.kind);
  return absl::OkStatus();
}

absl::Status MemoryKindId(PJRT_Memory_Kind_Id_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.kind_id = args.memory->kind;
  return absl::OkStatus();
}

absl::Status MemoryDebugString(PJRT_Memory_DebugString_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.debug_string = args.memory->text.data();
  args.debug_string_size = args.memory->text.size();
  return absl::OkStatus();
}

absl::Status MemoryToString(PJRT_Memory_ToString_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.to_string = args.memory->text.data();
  args.to_string_size = args.memory->text.size();
  return absl::OkStatus();
}

absl::Status MemoryDevices(PJRT_Memory_AddressableByDevices_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.memory, kMemory));
  args.devices = &args.memory->device;
  args.num_devices = 1;
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
