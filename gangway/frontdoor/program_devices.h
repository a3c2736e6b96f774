// The devices that a program of a foreign client runs on. Pure; the options are a client's and may be hostile.
#ifndef GANGWAY_FRONTDOOR_PROGRAM_DEVICES_H_
#define GANGWAY_FRONTDOOR_PROGRAM_DEVICES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/client/client.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway {

// Global device ids by logical position (replica x partitions + partition): those that the options assign, or the
// first `replicas * partitions` of the cluster. INVALID_ARGUMENT: an unknown device, too few devices, or an assignment
// that contradicts itself.
absl::StatusOr<std::vector<uint32_t>> ProgramDevices(const ClusterInfo& cluster,
                                                     const xla::CompileOptionsProto& options);

// The first devices of the cluster, as many as needed. INVALID_ARGUMENT: the cluster has fewer.
absl::StatusOr<std::vector<uint32_t>> FirstDevices(const ClusterInfo& cluster, int64_t replicas,
                                                   int64_t partitions);

}  // namespace gangway

#endif  // GANGWAY_FRONTDOOR_PROGRAM_DEVICES_H_
