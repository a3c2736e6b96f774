// XLA's CPU plugin disguised as the CUDA plugin, for machines without GPUs: it reports platform
// "cuda" and rejects the options of the CPU client. It exposes code that assumes what a plugin is
// instead of asking it. Observed with jax-cuda12-pjrt 0.10.2 (PJRT C API 0.112): the plugin rejects
// an unknown option with INVALID_ARGUMENT before it looks for a device, and knows "preallocate" and
// "memory_fraction".
#include <cstring>
#include <string_view>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

PJRT_Error* CreateClient(PJRT_Client_Create_Args* args) {
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "preallocate" && option.type == PJRT_NamedValue_kBool) continue;
    if (name == "memory_fraction" && option.type == PJRT_NamedValue_kFloat) continue;
    PJRT_Client_Create_Args none{};  // struct size 0: the real plugin returns INVALID_ARGUMENT
    return Real()->PJRT_Client_Create(&none);
  }
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
  static const PJRT_NamedValue kCapability = [] {
    PJRT_NamedValue named{};
    named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    named.name = "compute_capability";
    named.name_size = 18;
    named.type = PJRT_NamedValue_kString;
    named.string_value = "9.0";
    named.value_size = 3;
    return named;
  }();
  args->attributes = &kCapability;
  args->num_attributes = 1;
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Create = &CreateClient;
    copy.PJRT_Client_PlatformName = &PlatformName;
    copy.PJRT_DeviceDescription_Attributes = &DeviceAttributes;
    return copy;
  }();
  return &api;
}
