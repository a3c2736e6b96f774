// Where the members of a collective wait for each other: no member proceeds before all have
// arrived, and none learns that another will never arrive. So queues whose orders contradict each
// other deadlock, as on real devices.
#ifndef GANGWAY_SIMULATION_MEETING_H_
#define GANGWAY_SIMULATION_MEETING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace gangway::simulation {

class Meeting {
 public:
  // Member `position` of gang `ordinal` has arrived. The Join() of the last of `size` members calls
  // the `go` of each.
  void Join(uint64_t ordinal, uint32_t position, size_t size, std::function<void()> go) {
    auto& present = present_[ordinal];
    present[position] = std::move(go);
    if (present.size() < size) return;
    auto all = std::move(present);
    present_.erase(ordinal);
    for (auto& [member, start] : all) start();
  }
  // The member no longer waits.
  void Leave(uint64_t ordinal, uint32_t position) {
    auto it = present_.find(ordinal);
    if (it == present_.end()) return;
    it->second.erase(position);
    if (it->second.empty()) present_.erase(it);
  }
  size_t waiting_count() const { return present_.size(); }

 private:
  std::map<uint64_t, std::map<uint32_t, std::function<void()>>> present_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_MEETING_H_
