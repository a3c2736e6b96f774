// What the unit tests of the controller's rooms share: two islands of two workers of two devices. Device d is on island
// d / 4, worker d / 2 % 2.
#ifndef GANGWAY_CONTROLLER_CORE_ROOM_TEST_UTIL_H_
#define GANGWAY_CONTROLLER_CORE_ROOM_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/events.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

using Devices = std::vector<uint32_t>;

inline std::vector<wire::Worker> FourWorkers() {
  std::vector<wire::Worker> workers;
  for (uint32_t i = 0; i < 4; ++i) {
    wire::Worker& worker = workers.emplace_back();
    worker.set_island(i / 2);
    worker.set_index(i % 2);
    worker.add_devices(2 * i);
    worker.add_devices(2 * i + 1);
  }
  return workers;
}

inline wire::FailureRef SomeFailure(const std::string& message) {
  return wire::Share(wire::MakeFailure(absl::StatusCode::kInternal, message));
}

// "ISLAND:STORAGE" of whole storages, "ISLAND:STORAGE:FIRST+COUNT" of shards.
inline std::vector<std::string> FreesIn(const Actions& actions) {
  std::vector<std::string> frees;
  for (const auto& [island, item] : actions.to_islands) {
    for (const uint64_t storage : item.free().storages())
      frees.push_back(absl::StrCat(island, ":", storage));
    for (const wire::ShardRun& run : item.free().shards())
      frees.push_back(absl::StrCat(island, ":", run.storage(), ":", run.first(), "+", run.count()));
  }
  return frees;
}

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_ROOM_TEST_UTIL_H_
