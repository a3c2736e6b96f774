// The ends of a session's nodes, and what is to run at each. Nodes are numbered from 1 in the order of their
// submission, and end in any order. Pure; not thread-safe.
#ifndef GANGWAY_CLIENT_NODE_ENDS_H_
#define GANGWAY_CLIENT_NODE_ENDS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/client/client.h"

namespace gangway::client {

class NodeEnds {
 public:
  // The next nodes, at least one. `ended` is for the last of them that ends, with the first failure of all; it may be
  // empty.
  void Submit(uint64_t count, StatusCallback ended) {
    if (count > 1 && ended) ended = AfterAll(count, std::move(ended));
    for (uint64_t i = 1; i < count; ++i) nodes_.push_back({ended, false});
    nodes_.push_back({std::move(ended), false});
  }

  // Takes out what is to run at the end of `count` nodes from `first` on. Nodes that have ended, or were never
  // submitted, are skipped.
  void End(uint64_t first, uint64_t count, std::vector<StatusCallback>& ended) {
    const uint64_t submitted = ended_before_ + nodes_.size();
    if (first == 0 || first > submitted) return;
    const uint64_t last = first + std::min(count, submitted - first + 1);  // excluded
    for (uint64_t number = std::max(first, ended_before_ + 1); number < last; ++number) {
      Node& node = nodes_[number - ended_before_ - 1];
      if (std::exchange(node.has_ended, true) || !node.ended) continue;
      ended.push_back(std::move(node.ended));
    }
    while (!nodes_.empty() && nodes_.front().has_ended) {
      nodes_.pop_front();
      ++ended_before_;
    }
  }

  // Whether it was submitted, and has not ended as far as is known.
  bool IsPending(uint64_t number) const {
    if (number <= ended_before_ || number > ended_before_ + nodes_.size()) return false;
    return !nodes_[number - ended_before_ - 1].has_ended;
  }

  void EndAll(std::vector<StatusCallback>& ended) { End(ended_before_ + 1, nodes_.size(), ended); }

 private:
  struct Node {
    StatusCallback ended;
    bool has_ended = false;
  };

  // Calls `done` with the first failure of `count` calls, at the last of them, which come one at a time.
  static StatusCallback AfterAll(uint64_t count, StatusCallback done) {
    struct State {
      uint64_t left = 0;
      absl::Status first;
      StatusCallback done;
    };
    auto state = std::make_shared<State>(State{count, absl::OkStatus(), std::move(done)});
    return [state](const absl::Status& status) {
      state->first.Update(status);
      if (--state->left == 0) state->done(state->first);
    };
  }

  uint64_t ended_before_ = 0;  // all nodes up to this number have ended
  std::deque<Node> nodes_;     // the later ones
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_NODE_ENDS_H_
