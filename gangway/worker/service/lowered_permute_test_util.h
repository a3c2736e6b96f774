// For tests: a program as the compiler lowers it, whose only collective sends an array of floats from its first
// position to its second.
#ifndef GANGWAY_WORKER_SERVICE_LOWERED_PERMUTE_TEST_UTIL_H_
#define GANGWAY_WORKER_SERVICE_LOWERED_PERMUTE_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <utility>

#include "gangway/xla/collectives.pb.h"

namespace gangway::worker {

// `executable`: serialized, for one position.
inline std::string LoweredPermute(std::string executable, uint32_t positions) {
  xla::LoweredExecutable lowered;
  lowered.set_executable(std::move(executable));
  xla::CollectiveTable& table = *lowered.mutable_table();
  table.set_replica_count(1);
  table.set_partition_count(positions);
  xla::Collective& collective = *table.add_collectives();
  collective.set_kind(xla::Collective::PERMUTE);
  collective.add_sources(0);
  collective.add_targets(1);
  collective.add_operands()->set_element_type(11);
  return lowered.SerializeAsString();
}

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LOWERED_PERMUTE_TEST_UTIL_H_
