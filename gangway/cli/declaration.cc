// Implementation of declaration.h.
#include "gangway/cli/declaration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/host_memory.h"
#include "gangway/base/status.h"
#include "gangway/cli/certs.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/own_address.h"
#include "gangway/cli/plugin.h"
#include "gangway/transport/grpc/address.h"

namespace gangway::cli {
namespace {

constexpr uint32_t kDevicesMax = 4096, kThreadsMax = 4096;  // as in a cluster's file

uint32_t WorkersAt(const ClusterConfig& config, const std::string& host) {
  if (host.empty()) return config.workers_per_host;
  uint32_t count = 0;
  for (const HostIsland& island : config.islands) {
    for (const HostWorker& worker : island.workers) count += worker.host == host ? 1 : 0;
  }
  return count;
}

// Another user of this host can listen at a loopback port, too, so without TLS a controller chooses among the plugins
// that are installed here, and names no file.
absl::StatusOr<std::string> ChoosePlugin(const std::string& declared, const WorkerPlace& place,
                                         const std::string& tls) {
  if (!place.plugin.empty()) return FindPlugin(place.plugin);
  if (tls.empty() && declared.find_first_of("/.") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cluster declares the plugin ", declared,
                     ", a path, which a worker without TLS takes "
                     "from its own user only: give this worker --plugin ",
                     declared));
  }
  return FindPlugin(declared);
}

absl::StatusOr<std::string> ChooseHost(const wire::WorkerDeclaration& declared,
                                       const WorkerPlace& place, const std::string& controller,
                                       const std::string& tls) {
  if (!place.host.empty()) return place.host;
  if (!declared.host().empty()) return declared.host();
  if (tls.empty()) return "127.0.0.1";
  return OwnAddressTowards(controller);
}

uint32_t WorkersOnHost(const wire::WorkerDeclaration& declared, const WorkerPlace& place,
                       const std::string& host) {
  if (place.workers_per_host != 0) return place.workers_per_host;
  if (declared.workers_per_host() != 0) return declared.workers_per_host();
  return IsLoopbackHost(host) ? declared.worker_count() : 1;  // all are on this host then
}

}  // namespace

absl::Status CheckReach(const std::string& host, int port, const std::string& tls) {
  if (!tls.empty()) return CheckCertificate(tls, host);
  return transport::ParseAddress(HostAndPort(ListenHost(host), port), transport::Security::kPlain)
      .status();
}

Declarations Declare(const ClusterConfig& config) {
  uint32_t count = 0;
  for (const HostIsland& island : config.islands)
    count += static_cast<uint32_t>(island.workers.size());
  Declarations all;
  for (const HostIsland& island : config.islands) {
    auto& declared = all.emplace_back();
    for (const HostWorker& worker : island.workers) {
      wire::WorkerDeclaration& each = declared.emplace_back();
      each.set_island(static_cast<uint32_t>(all.size() - 1));
      each.set_index(static_cast<uint32_t>(declared.size() - 1));
      each.set_device_count(worker.devices);
      each.set_plugin(config.plugin);
      if (config.memory_bytes) each.set_memory_bytes(*config.memory_bytes);
      each.set_threads(static_cast<uint32_t>(config.threads));
      each.set_device_memory_fraction(config.device_memory.fraction);
      each.set_allocates_on_demand(!config.device_memory.preallocate);
      each.set_host(worker.host);
      each.set_data_port(static_cast<uint32_t>(worker.data_port));
      each.set_workers_per_host(WorkersAt(config, worker.host));
      each.set_worker_count(count);
      if (island.scheduler)
        each.set_scheduler_address(HostAndPort(island.scheduler->host, island.scheduler->port));
    }
  }
  return all;
}

absl::StatusOr<wire::WorkerDeclaration> FindDeclaration(const Declarations& declared,
                                                        std::optional<uint32_t> island,
                                                        uint32_t index) {
  uint32_t left = index;
  for (uint32_t i = 0; i < declared.size(); ++i) {
    if (island && *island != i) continue;
    if (left < declared[i].size()) return declared[i][left];
    if (!island) left -= static_cast<uint32_t>(declared[i].size());
  }
  const std::string counts = absl::StrJoin(declared, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.size());
  });
  if (island && *island >= declared.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("island ", *island, " is not declared: the cluster has ", declared.size(),
                     ", counted from 0, with workers: ", counts));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(island ? absl::StrCat("island", *island, "/worker", index)
                          : absl::StrCat("the worker of index ", index),
                   " is not declared: indices count from 0, and the islands have workers: ", counts,
                   "; start one worker process for each, or declare more"));
}

absl::Status Become(const wire::WorkerDeclaration& declared, const WorkerPlace& place,
                    WorkerRoleOptions& worker) {
  if (declared.device_count() == 0 || declared.device_count() > kDevicesMax ||
      declared.threads() == 0 || declared.threads() > kThreadsMax || declared.data_port() > 65535) {
    return absl::InternalError("the controller's declaration of this worker is damaged");
  }
  const std::string& tls = worker.access.tls;
  if (worker.simulated == 0) {
    GANGWAY_ASSIGN_OR_RETURN(worker.plugin, ChoosePlugin(declared.plugin(), place, tls));
  }
  GANGWAY_ASSIGN_OR_RETURN(worker.host, ChooseHost(declared, place, worker.control_address, tls));
  const int port = place.data_port.value_or(static_cast<int>(declared.data_port()));
  GANGWAY_RETURN_IF_ERROR(CheckReach(worker.host, port, tls));
  worker.island = declared.island();
  worker.index = declared.index();
  worker.devices = static_cast<int>(declared.device_count());
  worker.threads = static_cast<int>(declared.threads());
  worker.own_scheduler = !declared.scheduler_address().empty();
  if (worker.own_scheduler) worker.control_address = declared.scheduler_address();
  if (!worker.memory_bytes && declared.has_memory_bytes())
    worker.memory_bytes = declared.memory_bytes();
  const WorkerMemory memory =
      PlanWorker(HostMemoryBytes(), WorkersOnHost(declared, place, worker.host),
                 declared.device_count(), worker.plugin, worker.memory_bytes);
  worker.memory_bytes = memory.device_bytes;
  if (!worker.staging_bytes) worker.staging_bytes = memory.staging_bytes;
  if (!worker.shared_memory_bytes) worker.shared_memory_bytes = memory.shared_bytes;
  worker.heap_bytes = memory.heap_bytes;
  if (worker.device_memory.fraction == 0)
    worker.device_memory.fraction = declared.device_memory_fraction();
  if (declared.allocates_on_demand()) worker.device_memory.preallocate = false;
  worker.data_listen_address = HostAndPort(ListenHost(worker.host), port);
  worker.when_lost = WhenLost::kReturn;
  return absl::OkStatus();
}

}  // namespace gangway::cli
