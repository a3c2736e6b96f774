// The ends of a session's nodes that its client has not been told yet, and which of the session's nodes the client
// looks for. Nodes are numbered in the order of the session's operations, from 1. Pure; not thread-safe.
#ifndef GANGWAY_CONTROLLER_CORE_NODE_ENDS_H_
#define GANGWAY_CONTROLLER_CORE_NODE_ENDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class NodeEnds {
 public:
  // Of `count` nodes from this number on, at least one.
  void Add(uint64_t number, const wire::FailureRef& failure, uint64_t count = 1) {
    has_failure_ |= failure != nullptr;
    has_looked_for_ |= looked_for_ && *looked_for_ - number < count;
    if (!ends_.empty()) {
      End& last = ends_.back();
      if (last.failure == failure && last.first + last.count == number) {
        last.count += count;
        return;
      }
    }
    ends_.push_back({number, count, failure});
  }

  bool empty() const { return ends_.empty(); }
  // Whether one has failed since this was last empty.
  bool has_failure() const { return has_failure_; }

  // The client looks for the end of this node, and of no other one from now on; null: of none.
  void LookFor(std::optional<uint64_t> number) {
    looked_for_ = number;
    has_looked_for_ = false;
    must_search_ = number.has_value();
  }
  // Whether it is among these ends. Takes time for each of them once after LookFor, whose number many messages may
  // change before anything is told.
  bool HasLookedFor() {
    if (std::exchange(must_search_, false)) {
      has_looked_for_ = std::ranges::any_of(
          ends_, [&](const End& end) { return *looked_for_ - end.first < end.count; });
    }
    return has_looked_for_;
  }

  // Takes the first `max` ranges out.
  void MoveTo(size_t max, wire::Progress& progress) {
    const size_t count = std::min(max, ends_.size());
    for (size_t i = 0; i < count; ++i) {
      wire::NodesEnded* nodes = progress.add_nodes();
      nodes->set_first(ends_[i].first);
      nodes->set_count(ends_[i].count);
      if (ends_[i].failure) *nodes->mutable_failure() = *ends_[i].failure;
    }
    ends_.erase(ends_.begin(), ends_.begin() + static_cast<ptrdiff_t>(count));
    if (!ends_.empty()) return;
    has_failure_ = false;
    if (std::exchange(has_looked_for_, false)) looked_for_.reset();
  }

 private:
  struct End {
    uint64_t first = 0, count = 0;
    wire::FailureRef failure;
  };
  std::vector<End> ends_;
  bool has_failure_ = false;
  std::optional<uint64_t> looked_for_;
  bool has_looked_for_ = false;
  bool must_search_ = false;  // whether it is among the ends that came before LookFor is not known
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_NODE_ENDS_H_
