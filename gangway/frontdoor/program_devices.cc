// Implementation of program_devices.h.
#include "gangway/frontdoor/program_devices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/compile_options.h"

namespace gangway {

absl::StatusOr<std::vector<uint32_t>> FirstDevices(const ClusterInfo& cluster, int64_t replicas,
                                                   int64_t partitions) {
  const int64_t count = static_cast<int64_t>(cluster.devices.size());
  if (replicas < 1 || partitions < 1 || replicas > count || partitions > count / replicas) {
    return absl::InvalidArgumentError(absl::StrCat(
        replicas, " replicas x ", partitions, " partitions on a cluster of ", count, " devices"));
  }
  std::vector<uint32_t> devices;
  for (int64_t i = 0; i < replicas * partitions; ++i) devices.push_back(cluster.devices[i].id);
  return devices;
}

absl::StatusOr<std::vector<uint32_t>> ProgramDevices(const ClusterInfo& cluster,
                                                     const xla::CompileOptionsProto& options) {
  GANGWAY_ASSIGN_OR_RETURN(std::vector<uint32_t> devices, xla::AssignedDevices(options));
  for (uint32_t device : devices) {
    const auto found =
        std::lower_bound(cluster.devices.begin(), cluster.devices.end(), device,
                         [](const DeviceInfo& info, uint32_t id) { return info.id < id; });
    if (found == cluster.devices.end() || found->id != device) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device, " of the program is not one of the cluster's"));
    }
  }
  if (!devices.empty()) return devices;
  const auto& build = options.executable_build_options();
  return FirstDevices(cluster, std::max<int64_t>(1, build.num_replicas()),
                      std::max<int64_t>(1, build.num_partitions()));
}

}  // namespace gangway
