// Ready nodes that wait for memory or window slots, in ordinal order, in one lane per list of
// devices. A walk visits only the first node of each lane, so a thousand gangs behind a busy device
// cost nothing. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_
#define GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "gangway/base/ids.h"

namespace gangway::scheduler {

class ReadyQueue {
 public:
  using Devices = std::vector<IslandDevice>;

  void Insert(Ordinal ordinal, const Devices& devices) {
    Lane& lane = lanes_[devices];
    if (!lane.empty()) heads_.erase(*lane.begin());
    lane.insert(ordinal);
    heads_[*lane.begin()] = &lane;
  }

  void Erase(Ordinal ordinal, const Devices& devices) {
    auto it = lanes_.find(devices);
    if (it == lanes_.end()) return;
    Lane& lane = it->second;
    if (!lane.empty()) heads_.erase(*lane.begin());
    lane.erase(ordinal);
    if (lane.empty()) {
      lanes_.erase(it);
    } else {
      heads_[*lane.begin()] = &lane;
    }
  }

  // The smallest ordinal >= `from` that is the first of its lane.
  std::optional<Ordinal> NextHead(Ordinal from) const {
    auto it = heads_.lower_bound(from);
    if (it == heads_.end()) return std::nullopt;
    return it->first;
  }

 private:
  using Lane = std::set<Ordinal>;
  std::map<Devices, Lane> lanes_;   // none is empty
  std::map<Ordinal, Lane*> heads_;  // by first ordinal
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_
