// For rewriting HLO modules before they are partitioned: ids and names that are new, and one module's computations put
// into another. Pure, on untrusted protos.
#ifndef GANGWAY_COMPILER_HLO_INSERT_H_
#define GANGWAY_COMPILER_HLO_INSERT_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::compiler {

absl::Status MalformedProgram(const std::string& why);

class HloIds {
 public:
  // INVALID_ARGUMENT: ids so large that there is no room above them.
  static absl::StatusOr<HloIds> Of(const xla::HloModuleEditProto& module);

  // Unused by any instruction so far.
  int64_t New(int64_t computation);

  // Puts the computations of `body`, where each position computes on its own arrays, before those of `module`, with
  // names that begin with `name`. Returns the id of what was its entry. INVALID_ARGUMENT: it is malformed.
  absl::StatusOr<int64_t> Insert(const xla::HloModuleEditProto& body, const std::string& name,
                                 xla::HloModuleEditProto& module);

 private:
  HloIds() = default;

  // Newer plugins write the computation's id into the upper half of its instructions' ids.
  bool wide_ = false;
  absl::flat_hash_map<int64_t, int64_t> last_;  // by computation: the largest id in it
  int64_t last_id_ = 0;                         // the largest of all instructions,
  int64_t last_computation_ = 0;                // of all computations,
  int64_t last_channel_ = 0;                    // and of all channels
};

// The sharding of arrays that each position has for itself: of an array of this shape, or of each part of a tuple.
xla::OpShardingProto ManualSharding(const xla::ShapeProto& shape);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_HLO_INSERT_H_
