// Which members of a gang wait in a collective for which others, and whether some of them wait in a ring, each for the
// next one: then none of them can ever go on, because a member waits for what the next one does after its own wait.
//
// A report of a wait may be older than what ended the wait, and a message that ends it may be on its way between hosts.
// So a ring of reported waits is only a suspicion. All its members are then asked, and each confirms two things on its
// own worker: it is still in the reported wait, having looked once more, and it has not done what the member before it
// awaits. All confirmations are of a later time than all reports, and a member leaves a wait once and for all. So when
// the question was sent, all members were in these waits, and no message between them was on its way.
//
// Pure: no clock and no threads. A wait is confirmed or never answered; a member that goes on reports its next long
// wait, which ends the checks that name its former one.
#ifndef GANGWAY_SCHEDULER_CORE_GANG_WAITS_H_
#define GANGWAY_SCHEDULER_CORE_GANG_WAITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/ledger.h"
#include "gangway/wire/deadlock.pb.h"

namespace gangway::scheduler {

class GangWaits {
 public:
  struct Wait {
    IslandDevice device;
    uint64_t number = 0;  // larger than those of the device's earlier waits
    IslandDevice awaited;
    std::string collective;
    uint32_t collective_number = 0;
    uint32_t call = 0;  // earlier calls of that collective by the member
    // What the awaited device is still to do in the collectives' memory (wire/deadlock.proto). Absent: both workers
    // share that memory, so nothing between them is on its way.
    std::optional<wire::Deed> deed;
  };
  // Each waits for the next one, the last for the first.
  using Ring = std::vector<Wait>;

  // Keeps the wait, unless a later one of the device is known. Returns the ring that it closes, whose members are to be
  // asked by the name `check`; empty: it closes none.
  Ring Note(Wait wait, uint64_t check) {
    const IslandDevice device = wait.device;
    auto [known, is_first] = waits_.try_emplace(device, wait);
    if (!is_first) {
      if (known->second.number >= wait.number) return {};
      known->second = std::move(wait);
      std::erase_if(checks_, [device](const auto& each) {
        return std::ranges::any_of(each.second.ring,
                                   [&](const Wait& member) { return member.device == device; });
      });
    }
    Ring ring = RingThrough(device);
    if (!ring.empty()) checks_[check] = {ring, {}};
    return ring;
  }

  // The member has confirmed its wait. Returns the ring once all its members have; else nothing.
  Ring Confirm(uint64_t check, IslandDevice device) {
    const auto found = checks_.find(check);
    if (found == checks_.end()) return {};
    auto& [ring, confirmed] = found->second;
    const bool is_in_it =
        std::ranges::any_of(ring, [device](const Wait& each) { return each.device == device; });
    if (is_in_it) confirmed.insert(device);
    return confirmed.size() == ring.size() ? ring : Ring();
  }

 private:
  struct Check {
    Ring ring;
    std::set<IslandDevice> confirmed;
  };

  Ring RingThrough(IslandDevice device) const {
    Ring ring;
    IslandDevice next = device;
    do {
      const auto wait = waits_.find(next);
      // A longer chain has come to a ring without this device, which was found when its own last wait came.
      if (wait == waits_.end() || ring.size() == waits_.size()) return {};
      ring.push_back(wait->second);
      next = wait->second.awaited;
    } while (next != device);
    return ring;
  }

  std::map<IslandDevice, Wait> waits_;  // the last one that is known of each device
  std::map<uint64_t, Check>
      checks_;  // that nothing has refuted; their rings have no member in common
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_GANG_WAITS_H_
