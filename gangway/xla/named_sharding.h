// Shardings that newer versions of XLA write by the axes of a mesh, as the tiles that sharding.h reads. Pure, on
// untrusted protos.
#ifndef GANGWAY_XLA_NAMED_SHARDING_H_
#define GANGWAY_XLA_NAMED_SHARDING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {

// The ids of a mesh, row-major. INVALID_ARGUMENT: not as many as its axes have room for, or more than `ids_max`.
absl::StatusOr<std::vector<int64_t>> MeshIds(const MeshProto& mesh, int64_t ids_max);

// `proto` without a named sharding: as it is. INVALID_ARGUMENT: axes that the mesh does not have, that do not divide,
// or that are used twice; more than 2^20 positions.
absl::StatusOr<OpShardingProto> AsTiles(const OpShardingProto& proto);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_NAMED_SHARDING_H_
