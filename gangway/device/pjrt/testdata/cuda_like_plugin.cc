// XLA's CPU plugin disguised as the CUDA plugin, for machines without GPUs: it reports platform
// "cuda" and rejects the options of the CPU client. It exposes code that assumes what a plugin is
// instead of asking it. Observed with jax-cuda12-pjrt 0.10.2 (PJRT C API 0.112): the plugin rejects
// an unknown option with INVALID_ARGUMENT before it looks for a device, and knows "preallocate" and
// "memory_fraction"; without a GPU, or with an empty CUDA_VISIBLE_DEVICES, it has no devices. What a client was
// told of its memory is an attribute of its devices, for tests.
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

constexpr std::string_view kNoGpu = "No visible GPU devices.";

// The only error of this plugin's own, identified by its address.
PJRT_Error* NoGpu() {
  static char error;
  return reinterpret_cast<PJRT_Error*>(&error);
}

void ErrorDestroy(PJRT_Error_Destroy_Args* args) {
  if (args->error != NoGpu()) Real()->PJRT_Error_Destroy(args);
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  if (args->error != NoGpu()) return Real()->PJRT_Error_Message(args);
  args->message = kNoGpu.data();
  args->message_size = kNoGpu.size();
}

PJRT_Error* ErrorGetCode(PJRT_Error_GetCode_Args* args) {
  if (args->error != NoGpu()) return Real()->PJRT_Error_GetCode(args);
  args->code = PJRT_Error_Code_FAILED_PRECONDITION;
  return nullptr;
}

// Of the client that was made last: "preallocate 1, memory_fraction 0.40".
std::string& Told() {
  static std::string* const told = new std::string;
  return *told;
}

PJRT_Error* CreateClient(PJRT_Client_Create_Args* args) {
  bool preallocate = true;
  float fraction = 0.75;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "preallocate" && option.type == PJRT_NamedValue_kBool) {
      preallocate = option.bool_value;
      continue;
    }
    if (name == "memory_fraction" && option.type == PJRT_NamedValue_kFloat) {
      fraction = option.float_value;
      continue;
    }
    PJRT_Client_Create_Args none{};  // struct size 0: the real plugin returns INVALID_ARGUMENT
    return Real()->PJRT_Client_Create(&none);
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && *visible == '\0') return NoGpu();
  Told() = "preallocate " + std::to_string(preallocate) + ", memory_fraction " +
           std::to_string(fraction).substr(0, 4);
  PJRT_Client_Create_Args real = *args;
  real.create_options = nullptr;
  real.num_options = 0;  // by default it has four devices
  PJRT_Error* error = Real()->PJRT_Client_Create(&real);
  args->client = real.client;
  return error;
}

PJRT_Error* PlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "cuda";
  args->platform_name_size = 4;
  return nullptr;
}

PJRT_Error* DeviceAttributes(PJRT_DeviceDescription_Attributes_Args* args) {
  static constexpr auto kNamed = [](std::string_view name, std::string_view value) {
    PJRT_NamedValue named{};
    named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    named.name = name.data();
    named.name_size = name.size();
    named.type = PJRT_NamedValue_kString;
    named.string_value = value.data();
    named.value_size = value.size();
    return named;
  };
  static PJRT_NamedValue attributes[2];
  attributes[0] = kNamed("compute_capability", "9.0");
  attributes[1] = kNamed("told_of_memory", Told());
  args->attributes = attributes;
  args->num_attributes = 2;
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Create = &CreateClient;
    copy.PJRT_Error_Destroy = &ErrorDestroy;
    copy.PJRT_Error_Message = &ErrorMessage;
    copy.PJRT_Error_GetCode = &ErrorGetCode;
    copy.PJRT_Client_PlatformName = &PlatformName;
    copy.PJRT_DeviceDescription_Attributes = &DeviceAttributes;
    return copy;
  }();
  return &api;
}
