// Implementation of memory_plan.h.
#include "gangway/cli/memory_plan.h"

#include <algorithm>

#include "gangway/cli/plugin.h"

namespace gangway::cli {
namespace {

constexpr uint64_t kHeapBesideDevices = uint64_t{512} << 20;
constexpr uint64_t kHeadOfUnknownHost = uint64_t{1} << 30;

bool UsesHostMemory(const std::string& plugin) {
  if (plugin.empty()) return true;  // simulated devices
  auto cpu = FindPlugin("cpu");
  return cpu.ok() && *cpu == plugin;
}

}  // namespace

WorkerMemory PlanWorker(uint64_t host_bytes, uint32_t workers, uint32_t devices,
                        const std::string& plugin, std::optional<uint64_t> device_bytes) {
  const uint64_t share = host_bytes / std::max(workers, 1u);
  WorkerMemory memory{.device_bytes = device_bytes,
                      .staging_bytes = share / 4,
                      .shared_bytes = share / 4 * 3,
                      .heap_bytes = share / 4 * 3};
  if (!device_bytes && UsesHostMemory(plugin))
    memory.device_bytes = share / 2 / std::max(devices, 1u);
  const uint64_t chosen = device_bytes.value_or(0);
  if (chosen != 0 && chosen <= host_bytes)
    memory.heap_bytes = std::min(host_bytes, chosen * devices + kHeapBesideDevices);
  return memory;
}

uint64_t PlanCompiler(uint64_t host_bytes, std::optional<uint64_t> chosen_bytes) {
  return chosen_bytes.value_or(host_bytes / 4);
}

uint64_t PlanHead(uint64_t host_bytes, std::optional<uint64_t> chosen) {
  if (chosen) return *chosen;
  return host_bytes != 0 ? host_bytes / 4 : kHeadOfUnknownHost;
}

}  // namespace gangway::cli
