// Ready nodes that wait for memory or window slots, in ordinal order, in one lane per list of devices, which a number
// names (layouts.h). A walk visits only the first node of each lane, so a thousand gangs behind a busy device
// cost nothing. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_
#define GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "gangway/base/ids.h"

namespace gangway::scheduler {

class ReadyQueue {
 public:
  void Insert(Ordinal ordinal, uint64_t list) {
    Lane& lane = lanes_[list];
    if (!lane.empty()) heads_.erase(*lane.begin());
    lane.insert(ordinal);
    heads_[*lane.begin()] = &lane;
  }

  void Erase(Ordinal ordinal, uint64_t list) {
    auto it = lanes_.find(list);
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
  std::map<uint64_t, Lane> lanes_;  // by list; none is empty
  std::map<Ordinal, Lane*> heads_;  // by first ordinal
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_READY_QUEUE_H_
