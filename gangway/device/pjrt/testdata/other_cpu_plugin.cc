// XLA's CPU plugin disguised as a version without YNNPACK fusions: it rejects a compile with their
// option, as the real plugin rejects unknown options.
#include <cstring>
#include <string_view>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

constexpr std::string_view kOption = "xla_cpu_experimental_ynn_fusion_type";
constexpr std::string_view kRefusal = "No such option: xla_cpu_experimental_ynn_fusion_type";

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

// The only error of this plugin's own, identified by its address.
PJRT_Error* Refusal() {
  static char error;
  return reinterpret_cast<PJRT_Error*>(&error);
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  const std::string_view options(args->compile_options, args->compile_options_size);
  if (options.find(kOption) != std::string_view::npos) return Refusal();
  return Real()->PJRT_Client_Compile(args);
}

void ErrorDestroy(PJRT_Error_Destroy_Args* args) {
  if (args->error != Refusal()) Real()->PJRT_Error_Destroy(args);
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  if (args->error != Refusal()) return Real()->PJRT_Error_Message(args);
  args->message = kRefusal.data();
  args->message_size = kRefusal.size();
}

PJRT_Error* ErrorGetCode(PJRT_Error_GetCode_Args* args) {
  if (args->error != Refusal()) return Real()->PJRT_Error_GetCode(args);
  args->code = PJRT_Error_Code_INVALID_ARGUMENT;
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Compile = &Compile;
    copy.PJRT_Error_Destroy = &ErrorDestroy;
    copy.PJRT_Error_Message = &ErrorMessage;
    copy.PJRT_Error_GetCode = &ErrorGetCode;
    return copy;
  }();
  return &api;
}
