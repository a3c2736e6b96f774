// Opens a PJRT plugin (XLA CPU, CUDA, TPU, ...) as a device::Backend.
//
// Facts of the XLA CPU plugin that callers must know (docs/internals/probes.md, tested in
// pjrt_traps_test.cc):
//   * The 33rd execute in flight on one device blocks its caller. Small programs run in the thread
//     that calls ExecuteOn.
//   * One poisoned shard of a program with XLA's own collectives makes XLA abort the PROCESS after
//     40 s: settle all inputs of a gang together, all filled or all poisoned.
//   * Gangs that are enqueued in different orders on their devices (GS-1) abort it, too. Gangs in
//     flight that share a launch id mix their members silently.
//   * Programs whose collectives are FFI handlers block threads of XLA's pool: PjrtOptions::nproc
//     must exceed devices + cores.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_BACKEND_H_
#define GANGWAY_DEVICE_PJRT_PJRT_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/device/device_memory.h"

namespace gangway::device {

struct PjrtOptions {
  std::string plugin_path;
  // Passed to the plugin as `cpu_device_count` when > 0. A plugin without that option opens all
  // devices that it finds; devices() lists them.
  int device_count = 0;
  // This process only compiles programs: a plugin that preallocates most of a device's memory
  // (CUDA: "preallocate") is told not to.
  bool compiles_only = false;
  // A plugin that cannot do what was chosen is refused: INVALID_ARGUMENT.
  DeviceMemory memory;
  // Passed to the plugin's client unchanged.
  std::vector<std::pair<std::string, std::variant<int64_t, bool, float, std::string>>>
      client_options;
  // Size of XLA CPU's thread pools, set as environment NPROC before the plugin is loaded; one value
  // per process. The bits of a matrix product depend on it, so every worker, compiler and reference
  // uses the same. 0 leaves NPROC unchanged.
  int nproc = 64;
};

// Errors: those of PjrtApi::Load (NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION, each says what
// to do), and the plugin's own error when it cannot create a client. Call it before other threads
// read the environment.
absl::StatusOr<std::unique_ptr<Backend>> OpenPjrt(const PjrtOptions& options);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_BACKEND_H_
