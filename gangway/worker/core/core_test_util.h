// What the tests of the worker's core share.
#ifndef GANGWAY_WORKER_CORE_CORE_TEST_UTIL_H_
#define GANGWAY_WORKER_CORE_CORE_TEST_UTIL_H_

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/fleet.h"

namespace gangway::worker {

// The actions of one kind, in their order.
template <typename A>
std::vector<A> All(const std::vector<Action>& actions) {
  std::vector<A> found;
  for (const Action& action : actions) {
    if (const auto* match = std::get_if<A>(&action)) found.push_back(*match);
  }
  return found;
}

// The actions since the last call.
inline std::vector<Action> Taken(std::vector<Action>& actions) {
  return std::exchange(actions, {});
}

// `count` shards of a storage, from the first one.
inline wire::ArrayRef RefTo(uint64_t storage, uint32_t count, uint32_t first = 0) {
  wire::ArrayRef ref;
  wire::ShardRun& run = *ref.add_runs();
  run.set_storage(storage);
  run.set_first(first);
  run.set_count(count);
  return ref;
}

// A worker with the devices 10 and 11.
inline Fleet FleetOfTwo() {
  Fleet fleet(2);
  wire::OpenDevices open;
  open.add_devices(10);
  open.add_devices(11);
  fleet.Open(open);
  return fleet;
}

inline google::protobuf::RepeatedField<uint32_t> Devices(const std::vector<uint32_t>& devices) {
  return {devices.begin(), devices.end()};
}

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_CORE_TEST_UTIL_H_
