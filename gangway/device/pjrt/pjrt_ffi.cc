// Implementation of pjrt_ffi.h.
#include "gangway/device/pjrt/pjrt_ffi.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/device/pjrt/pjrt_executable.h"

namespace gangway::device {
namespace {

// The FFI extension of PJRT C API 0.81, whose header is not in the plugin's wheel. Newer versions
// put an api_version after name_size; the probe below verifies that this layout is right.
struct FfiRegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(FfiRegisterHandlerArgs*);
};

// XLA's names of the platforms in its FFI registry.
constexpr std::string_view kHostPlatform = "Host";
constexpr std::string_view kCudaPlatform = "CUDA";

// A program with one custom call per handler. It is compiled, never run: an unknown target fails
// the compile.
std::string ProbeProgram(std::span<const FfiHandler> handlers) {
  std::string text = "module @gangway_ffi_probe {\n  func.func public @main() {\n";
  for (const FfiHandler& handler : handlers) {
    absl::StrAppend(
        &text, "    stablehlo.custom_call @\"", handler.name,
        "\"() {api_version = 4 : i32, has_side_effect = true, backend_config = {}} : () -> ()\n");
  }
  return text + "    return\n  }\n}\n";
}

absl::Status CheckNames(std::span<const FfiHandler> handlers) {
  for (const FfiHandler& handler : handlers) {
    bool good = !handler.name.empty() && handler.handler != nullptr;
    for (char c : handler.name) good = good && c > ' ' && c < 127 && c != '"' && c != '\\';
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("FFI handler '", handler.name,
                       "' needs an address, and a name of printable characters without "
                       "spaces, quotes and backslashes"));
    }
  }
  return absl::OkStatus();
}

absl::Status RegisterOne(const PjrtApi& api, const FfiExtension& extension,
                         const FfiHandler& handler) {
  FfiRegisterHandlerArgs args{};
  args.struct_size = sizeof(args);
  args.target_name = handler.name.data();
  args.target_name_size = handler.name.size();
  args.handler = handler.handler;
  const std::string_view platform = handler.device_memory ? kCudaPlatform : kHostPlatform;
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  return api.TakeError(extension.register_handler(&args));
}

}  // namespace

absl::Status RegisterPjrtFfiHandlers(const std::shared_ptr<const PjrtClient>& client,
                                     std::span<const FfiHandler> handlers) {
  const Capabilities& capabilities = client->capabilities();
  const bool taken = std::ranges::all_of(
      handlers, [&](const FfiHandler& handler) { return Takes(capabilities, handler); });
  if (!taken) {
    return absl::UnimplementedError(
        absl::StrCat("the plugin for platform ", capabilities.platform,
                     " has no such FFI handlers; programs with such custom calls cannot run"));
  }
  const auto* extension =
      reinterpret_cast<const FfiExtension*>(client->api().FindExtension(PJRT_Extension_Type_FFI));
  GANGWAY_RETURN_IF_ERROR(CheckNames(handlers));
  static Mutex mutex;
  // By plugin and name. Registrations last as long as the plugin: until the process ends.
  static auto* const registered = new std::map<std::pair<const PjrtApi*, std::string>, void*>();
  MutexLock lock(mutex);
  std::vector<FfiHandler> fresh;
  for (const FfiHandler& handler : handlers) {
    auto found = registered->find({&client->api(), handler.name});
    if (found == registered->end()) {
      fresh.push_back(handler);
    } else if (found->second != handler.handler) {
      return absl::AlreadyExistsError(absl::StrCat(
          "FFI handler '", handler.name, "' was registered with another address in this process"));
    }
  }
  if (fresh.empty()) return absl::OkStatus();
  for (const FfiHandler& handler : fresh) {
    absl::Status status = RegisterOne(client->api(), *extension, handler);
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the plugin rejected FFI handler '", handler.name, "': ", status.message()));
    }
  }
  const std::string probe = ProbeProgram(fresh);
  absl::Status took = PjrtExecutable::Compile(client, Program{probe, "mlir"}, "", {}).status();
  if (!took.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the plugin accepted ", fresh.size(),
        " FFI handlers without an error, but a program that calls them does not "
        "compile: ",
        took.message(),
        ". The usual cause is a handler built with an FFI header of another version than "
        "the plugin's: build with the header that tools/setup.sh unpacks (jaxlib 0.8.1)"));
  }
  for (const FfiHandler& handler : fresh)
    registered->emplace(std::pair(&client->api(), handler.name), handler.handler);
  return absl::OkStatus();
}

}  // namespace gangway::device
