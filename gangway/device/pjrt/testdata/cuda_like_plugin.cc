// A PJRT plugin that presents itself as the CUDA one does, on a machine without GPUs: XLA's CPU
// plugin, which calls its platform "cuda" and knows no option of the CPU client. So what is asked
// of a plugin is told apart from what is taken for granted. Seen of jax-cuda12-pjrt 0.10.2 (PJRT C
// API 0.112): an unknown option is refused with INVALID_ARGUMENT before a device is looked for;
// "preallocate" is known.
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
    if (std::string_view(option.name, option.name_size) == "preallocate") continue;
    PJRT_Client_Create_Args none{};  // of size 0: the real one answers INVALID_ARGUMENT
    return Real()->PJRT_Client_Create(&none);
  }
  PJRT_Client_Create_Args real = *args;
  real.create_options = nullptr;
  real.num_options = 0;  // four devices
  PJRT_Error* error = Real()->PJRT_Client_Create(&real);
  args->client = real.client;
  return error;
}

PJRT_Error* PlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "cuda";
  args->platform_name_size = 4;
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Create = &CreateClient;
    copy.PJRT_Client_PlatformName = &PlatformName;
    return copy;
  }();
  return &api;
}
