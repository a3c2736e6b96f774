// How the processes of a cluster divide the memory of a host: half for arrays and programs on CPU devices, a quarter
// for bytes that are on their way through workers, and of the other quarter what the head holds for clients
// (base/memory_budget.h). All workers of a host have equal parts, and so have all devices of a worker.
#ifndef GANGWAY_CLI_MEMORY_PLAN_H_
#define GANGWAY_CLI_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gangway::cli {

struct WorkerMemory {
  // The budget of each device (GS-2). 0: no limit. Not set: what the device itself says.
  std::optional<uint64_t> device_bytes;
  uint64_t staging_bytes = 0;  // WorkerOptions::host_bytes_max
  uint64_t shared_bytes =
      0;  // WorkerOptions::shared_bytes_max: what devices and bytes on their way may take together
  uint64_t heap_bytes = 0;  // WorkerOptions::heap_bytes_max
};

// The memory of one of `workers` equal workers of a host with `host_bytes`. `device_bytes`: a budget that was chosen by
// hand. `plugin`: a path; its devices use the host's memory if it is XLA's for CPUs.
WorkerMemory PlanWorker(uint64_t host_bytes, uint32_t workers, uint32_t devices,
                        const std::string& plugin, std::optional<uint64_t> device_bytes);

// The most memory that a compiler process may use for one program: a quarter of the host's. 0: no limit.
uint64_t PlanCompiler(uint64_t host_bytes, std::optional<uint64_t> chosen_bytes);

// What the head holds for clients at most: `chosen`, else a quarter of the host; 1 GiB where the host's is unknown.
uint64_t PlanHead(uint64_t host_bytes, std::optional<uint64_t> chosen);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_MEMORY_PLAN_H_
