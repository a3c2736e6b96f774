// Implementation of compile_options.h.
#include "gangway/xla/compile_options.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gangway::xla {

absl::StatusOr<std::vector<uint32_t>> AssignedDevices(const CompileOptionsProto& options) {
  const DeviceAssignmentProto& assignment = options.executable_build_options().device_assignment();
  const int partitions = assignment.computations_size();
  if (assignment.computation_count() != partitions) {
    return absl::InvalidArgumentError(absl::StrCat("a device assignment of ",
                                                   assignment.computation_count(),
                                                   " partitions lists ", partitions));
  }
  std::vector<uint32_t> devices;
  absl::flat_hash_set<int64_t> seen;
  for (const auto& computation : assignment.computations()) {
    if (computation.replica_device_ids_size() != assignment.replica_count()) {
      return absl::InvalidArgumentError(absl::StrCat("a device assignment of ",
                                                     assignment.replica_count(), " replicas lists ",
                                                     computation.replica_device_ids_size()));
    }
    for (int64_t device : computation.replica_device_ids()) {
      if (device < 0 || device > UINT32_MAX || !seen.insert(device).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("a device assignment names device ", device, " wrongly or twice"));
      }
    }
  }
  for (int replica = 0; partitions > 0 && replica < assignment.replica_count(); ++replica) {
    for (const auto& computation : assignment.computations()) {
      devices.push_back(static_cast<uint32_t>(computation.replica_device_ids(replica)));
    }
  }
  return devices;
}

absl::StatusOr<std::string> WithDevices(std::string_view serialized_options,
                                        std::span<const uint32_t> devices) {
  CompileOptionsProto options;
  if (serialized_options.size() > INT32_MAX ||
      !options.ParseFromArray(serialized_options.data(),
                              static_cast<int>(serialized_options.size()))) {
    return absl::InvalidArgumentError(
        "the compile options are not a serialized CompileOptionsProto");
  }
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.clear_device_assignment();
  if (!devices.empty()) {
    const int64_t replicas = std::max<int64_t>(1, build.num_replicas());
    const int64_t partitions = std::max<int64_t>(1, build.num_partitions());
    const int64_t count = static_cast<int64_t>(devices.size());
    if (replicas > count || partitions > count || replicas * partitions != count) {
      return absl::InvalidArgumentError(absl::StrCat("a program for ", replicas, " replicas x ",
                                                     partitions, " partitions was given ", count,
                                                     " devices"));
    }
    DeviceAssignmentProto& assignment = *build.mutable_device_assignment();
    assignment.set_replica_count(static_cast<int32_t>(replicas));
    assignment.set_computation_count(static_cast<int32_t>(partitions));
    for (int64_t partition = 0; partition < partitions; ++partition) {
      auto& computation = *assignment.add_computations();
      for (int64_t replica = 0; replica < replicas; ++replica) {
        computation.add_replica_device_ids(devices[replica * partitions + partition]);
      }
    }
  }
  return options.SerializeAsString();
}

}  // namespace gangway::xla
