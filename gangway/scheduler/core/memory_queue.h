// Ready nodes that do not fit into memory, by list of devices. They stand aside, so nodes behind them that fit go on.
// So that they do not starve, the oldest of a list is overtaken kOvertakenMax times at most; then nothing younger takes
// memory on its devices. Looking for nodes that fit again costs a bounded time per list, and a node that takes memory
// is compared with each list, in time in proportion to both. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_MEMORY_QUEUE_H_
#define GANGWAY_SCHEDULER_CORE_MEMORY_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/layouts.h"

namespace gangway::scheduler {

class MemoryQueue {
 public:
  using Devices = std::vector<IslandDevice>;  // sorted
  static constexpr int kOvertakenMax = 256;

  bool empty() const { return lists_.empty(); }

  // Does nothing if it is here already.
  void Add(Ordinal ordinal, const LayoutRef& layout, uint64_t bytes) {
    List& list = lists_[layout->number];
    list.layout = layout;
    list.by_age.emplace(ordinal, bytes);
    list.by_size.emplace(bytes, ordinal);
  }

  // Does nothing if it is not here.
  void Remove(Ordinal ordinal, const Layout& layout) {
    auto list = lists_.find(layout.number);
    if (list == lists_.end()) return;
    auto node = list->second.by_age.find(ordinal);
    if (node == list->second.by_age.end()) return;
    if (node == list->second.by_age.begin()) list->second.overtaken = 0;
    list->second.by_size.erase({node->second, ordinal});
    list->second.by_age.erase(node);
    if (list->second.by_age.empty()) lists_.erase(list);
  }

  // Whether the node may take memory there: no older one has been overtaken too often.
  bool MayTake(Ordinal ordinal, const Devices& devices) const {
    return std::none_of(lists_.begin(), lists_.end(), [&](const auto& list) {
      return list.second.overtaken >= kOvertakenMax && Oldest(list.second) < ordinal &&
             Overlap(list.second.layout->sorted, devices);
    });
  }

  // The node took memory there.
  void NoteTaken(Ordinal ordinal, const Devices& devices) {
    for (auto& [number, list] : lists_) {
      if (Oldest(list) < ordinal && Overlap(list.layout->sorted, devices)) ++list.overtaken;
    }
  }

  // Nodes that now fit, the older ones of a list first; perhaps one twice, and perhaps not all. They stay here until
  // they are removed, since another may take the memory first. `free`: the bytes free on each device of a list.
  template <typename Free>
  std::vector<std::pair<Ordinal, LayoutRef>> Fitting(Free free) const {
    std::vector<std::pair<Ordinal, LayoutRef>> fitting;
    for (const auto& [number, list] : lists_) {
      uint64_t left = free(list.layout->sorted);
      int passed = 0;
      for (const auto& [ordinal, bytes] : list.by_age) {
        if (list.by_size.begin()->first > left || passed > kPassedMax) break;
        if (bytes > left) {
          ++passed;
          continue;
        }
        left -= bytes;
        fitting.emplace_back(ordinal, list.layout);
      }
      if (passed <= kPassedMax) continue;
      for (const auto& [bytes, ordinal] : list.by_size) {
        if (bytes > left) break;
        left -= bytes;
        fitting.emplace_back(ordinal, list.layout);
      }
    }
    return fitting;
  }

 private:
  static constexpr int kPassedMax = 64;  // nodes that do not fit, before the smallest are tried
  struct List {
    LayoutRef layout;
    std::map<Ordinal, uint64_t> by_age;              // what each needs
    std::set<std::pair<uint64_t, Ordinal>> by_size;  // the same
    int overtaken = 0;                               // how often the oldest was
  };

  static Ordinal Oldest(const List& list) { return list.by_age.begin()->first; }
  // Both are sorted.
  static bool Overlap(const Devices& a, const Devices& b) {
    for (auto left = a.begin(), right = b.begin(); left != a.end() && right != b.end();) {
      if (*left == *right) return true;
      ++(*left < *right ? left : right);
    }
    return false;
  }

  std::map<uint64_t, List> lists_;  // by the layout's number; none is empty
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_MEMORY_QUEUE_H_
