// The compiler's main function (roles.h).
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/lasting_error.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/role_process.h"
#include "gangway/cli/roles.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/compiler/compiler.h"
#include "gangway/compiler/confinement.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/device/pjrt/simulated_work.h"
#include "gangway/device/sim/sim_backend.h"

namespace gangway::cli {
namespace {

// Virtual memory for the stacks of the threads that the largest program needs (compiler/partition.h), 8 MiB each, and
// for what XLA and the C library reserve without touching it.
constexpr uint64_t kReservedBytes = uint64_t{32} << 30;
constexpr uint64_t kFileBytesMax = uint64_t{2} << 30;  // no protobuf message is larger
constexpr int kConverterDevices = 2;                   // of the runtime that converts programs

// Makes the folder, empty, the process's place for temporary files. Before other threads read the environment.
absl::Status UseScratch(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot make the folder ", folder, " for files of ",
                                               "programs: ", error.message()));
  setenv("TMPDIR", folder.c_str(), 1);
  return absl::OkStatus();
}

// What the kernel lacks is said, here and by `gangway doctor`, and the rest holds.
absl::Status OrSay(const absl::Status& confined) {
  if (!absl::IsUnimplemented(confined)) return confined;
  spdlog::warn("programs can do more here than elsewhere: {}", std::string(confined.message()));
  return absl::OkStatus();
}

// Compilers for other devices use their drivers' files and start programs of their own.
absl::Status ConfineCompiler(const CompilerRoleOptions& options, const device::Backend& backend) {
  const std::string& platform = backend.capabilities().platform;
  if (platform != "cpu" && !options.simulated) {
    spdlog::warn("this process is not confined: its platform is {}", platform);
    return absl::OkStatus();
  }
  const uint64_t more = options.memory_bytes == 0 ? 0 : 2 * options.memory_bytes + kReservedBytes;
  GANGWAY_RETURN_IF_ERROR(
      compiler::LimitProcess({.more_address_bytes = more, .file_bytes_max = kFileBytesMax}));
  compiler::FileAccess files{.readable = compiler::SystemFiles()};
  std::error_code error;
  if (!options.simulated)
    files.readable.push_back(
        std::filesystem::canonical(options.plugin, error).parent_path().native());
  for (const std::string& folder : {options.scratch_folder, options.cache_folder})
    if (!folder.empty()) files.writable.push_back(folder);
  GANGWAY_RETURN_IF_ERROR(OrSay(compiler::ConfineFiles(files)));
  return OrSay(compiler::ConfineCalls());
}

// What converts programs for another platform's check: the CPU plugin, where it is installed. Null otherwise.
std::unique_ptr<device::Backend> OpenConverter(const device::Backend& backend) {
  const device::Capabilities& capabilities = backend.capabilities();
  if (capabilities.programs == device::Capabilities::Programs::kDeclared) return nullptr;
  if (capabilities.platform == "cpu") return nullptr;  // it converts itself
  device::PjrtOptions pjrt;
  pjrt.device_count = kConverterDevices;
  pjrt.nproc = 0;
  pjrt.compiles_only = true;
  auto plugin = FindPlugin("cpu");
  absl::Status why = plugin.status();
  if (plugin.ok()) {
    pjrt.plugin_path = *std::move(plugin);
    auto opened = device::OpenPjrt(pjrt);
    if (opened.ok()) return *std::move(opened);
    why = opened.status();
  }
  spdlog::warn("programs are compiled without a check: {}", std::string(why.message()));
  return nullptr;
}

compiler::OpenBackend OpenLarger(const device::PjrtOptions& pjrt) {
  return [pjrt](int device_count) {
    device::PjrtOptions larger = pjrt;
    larger.device_count = device_count;
    larger.nproc = 0;  // as it is: other threads may read the environment
    return device::OpenPjrt(larger);
  };
}

device::PjrtOptions CompilingPjrt(const CompilerRoleOptions& options) {
  device::PjrtOptions pjrt;
  pjrt.plugin_path = options.plugin;
  pjrt.device_count = std::max(options.devices, kConverterDevices);
  pjrt.nproc = options.threads;
  pjrt.compiles_only = true;
  return pjrt;
}

absl::StatusOr<std::unique_ptr<device::Backend>> OpenCompiling(const CompilerRoleOptions& options) {
  if (options.simulated) return device::OpenSim({.device_count = options.devices});
  GANGWAY_ASSIGN_OR_RETURN(auto backend, device::OpenPjrt(CompilingPjrt(options)));
  device::OfferHandlers(*backend,
                        std::vector{device::LinalgHandlers(backend->capabilities()),
                                    device::SimulatedWorkHandlers(), device::HostCallHandlers(),
                                    device::PositionHandlers(), collective::CollectiveHandlers()});
  return backend;
}

// A spare ends with its link: the head lets it go when it has had no work.
int ExitOfCompiler(const absl::Status& ended, bool spare) {
  if (ended.ok()) return 0;
  const bool let_go = spare || absl::IsCancelled(ended);
  if (!let_go || IsLasting(ended)) return FailRole(ended);
  spdlog::info("this compiler ends: {}", std::string(ended.message()));
  return RestartPolicy::kBlameless;
}

}  // namespace

int RunCompilerRole(const CompilerRoleOptions& options) {
  BeginRole("compiler");
  if (auto status = UseScratch(options.scratch_folder); !status.ok()) return FailRole(status);
  auto backend = OpenCompiling(options);
  if (!backend.ok()) return FailRole(backend.status());
  auto access = ReadAccess(options.access);
  if (!access.ok()) return FailRole(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return FailRole(transport.status());
  compiler::CompilerOptions compiler;
  compiler.token = access->token;
  compiler.transport = transport->get();
  compiler.head_address = options.control_address;
  compiler.backend = backend->get();
  const std::unique_ptr<device::Backend> converter = OpenConverter(**backend);
  compiler.converter = converter.get();
  if (!options.simulated) compiler.open = OpenLarger(CompilingPjrt(options));
  compiler.confine = [&] { return ConfineCompiler(options, **backend); };
  compiler.memory_bytes_max = options.memory_bytes;
  compiler.index = options.index;
  if (options.index > 0) compiler.name = absl::StrCat("compiler", options.index);
  compiler.plugin_path = options.plugin;
  compiler.cache_folder = options.cache_folder;
  std::stop_source stop;
  static Thread* const waits = new Thread("gw-signals", [stop]() mutable {  // ends with the process
    WaitForStop();
    stop.request_stop();
  });
  (void)waits;
  absl::Status ended = compiler::RunCompiler(compiler, stop.get_token());
  return ExitOfCompiler(ended, options.index > 0);
}

}  // namespace gangway::cli
