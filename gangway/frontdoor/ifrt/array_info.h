// The front door's description of an array: element type, global and shard dimensions, devices.
// Immutable and shared: every result of the same output of an executable has the same ArrayInfo.
// Readers take the protocol's messages, which a client may send malformed: they return
// INVALID_ARGUMENT or UNIMPLEMENTED and never crash.
#ifndef GANGWAY_FRONTDOOR_IFRT_ARRAY_INFO_H_
#define GANGWAY_FRONTDOOR_IFRT_ARRAY_INFO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/client/client.h"
#include "gangway/xla/ifrt_types.pb.h"
#include "gangway/xla/sharding.h"

namespace gangway::ifrt {

struct ArrayInfo {
  int32_t element_type = 0;
  std::vector<int64_t> dims;  // global
  std::vector<int64_t> shard_dims;
  std::vector<uint32_t> devices;  // shard i is on devices[i]
  std::string memory_kind;        // "" = device
  bool fully_replicated = false;
  // Of each shard in the array; empty: unknown (the client gave only the shape of the shards), or not each shard is a
  // part of the array.
  std::vector<std::vector<int64_t>> offsets;
  uint64_t shard_bytes = 0;
  // Of a program's result whose shards tile it or are copies of it; null: not known so. Clients since jaxlib 0.12 put
  // the parts of an array together by it.
  std::shared_ptr<const xla::OpShardingProto> hlo_sharding;
};
using ArrayInfoRef = std::shared_ptr<const ArrayInfo>;

// A handle of the session's client. `error` is set if the front door itself poisoned the array.
struct ArrayRecord {
  ArrayInfoRef info;
  absl::Status error;
  bool deleted = false;  // deleted or donated, though its handle still lives
};

using ArrayTable = absl::flat_hash_map<ArrayHandle, ArrayRecord>;
using DeviceSet = absl::flat_hash_set<uint32_t>;

// Fills `offsets` from `sharding`, which shards info's dims over its devices.
void SetOffsets(const xla::Sharding& sharding, ArrayInfo& info);

// `known` are the cluster's devices; others in the sharding are INVALID_ARGUMENT.
absl::StatusOr<ArrayInfoRef> ReadArrayInfo(const xla::IfrtDTypeProto& dtype,
                                           const xla::IfrtShapeProto& shape,
                                           const xla::IfrtShardingProto& sharding,
                                           const DeviceSet& known);

// The same. UNIMPLEMENTED: the spec asks for another layout than row-major.
absl::StatusOr<ArrayInfoRef> ReadArrayInfo(const xla::IfrtArraySpecProto& spec,
                                           const DeviceSet& known);

// The protocol's form, for the outputs of a first execution.
absl::StatusOr<xla::IfrtShardingProto> WriteSharding(const ArrayInfo& info);

// Describes shard `shard` as an array of its own.
ArrayInfoRef ShardInfo(const ArrayInfo& info, size_t shard);

ArraySpec ToSpec(const ArrayInfo& info);

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_ARRAY_INFO_H_
