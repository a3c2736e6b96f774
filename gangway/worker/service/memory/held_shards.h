// The local part of one storage: the slots of its shards on this worker. Of the event loop; the slots are thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_MEMORY_HELD_SHARDS_H_
#define GANGWAY_WORKER_SERVICE_MEMORY_HELD_SHARDS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gangway/device/device.h"
#include "gangway/store/slot.h"

namespace gangway::worker {

struct HeldShards {
  device::ArraySpec spec;  // of each
  std::string memory_kind;
  std::vector<std::pair<uint32_t, std::shared_ptr<store::Slot>>> shards;  // by index, increasing

  // Null: another worker's, or freed.
  std::shared_ptr<store::Slot> Find(uint32_t shard) const {
    const auto entry =
        std::lower_bound(shards.begin(), shards.end(), shard,
                         [](const auto& each, uint32_t wanted) { return each.first < wanted; });
    return entry != shards.end() && entry->first == shard ? entry->second : nullptr;
  }
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_MEMORY_HELD_SHARDS_H_
