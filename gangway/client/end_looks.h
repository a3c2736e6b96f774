// EndLooks: which ends of its operations a session looks for. While it looks for none, the controller may tell of them
// together: each message that tells of one costs the controller a write and this process a wake.
//
// A look is for every end, from Begin until End, or names one node, until that has ended. A session starts with one of
// the first kind. After kUnlookedEndsMax ends that came without a look, the next operation carries the leave to tell
// together; the next look takes that back, in a message of its own if need be. But the end of one node that is far
// ahead of what has ended is asked for by its number: the many ends before it are still told together. So a session
// that looks for each end or for every few sends nothing of this.
//
// Pure; not thread-safe. Looks for every end may end before they begin, where two threads meet: their number may pass
// below 0.
#ifndef GANGWAY_CLIENT_END_LOOKS_H_
#define GANGWAY_CLIENT_END_LOOKS_H_

#include <cstdint>
#include <set>
#include <utility>

namespace gangway::client {

class EndLooks {
 public:
  static constexpr uint64_t kUnlookedEndsMax = 16;

  // What the controller is to be told of the ends from now on.
  enum class Tell {
    kAsBefore,
    kAtOnce,
    kTogether,  // but the end of the node that was looked for, with all that is untold, at once
  };

  // True: the controller is to be told that ends are told at once, from now on.
  bool Begin() {
    ++looks_;
    unlooked_ends_ = 0;
    return std::exchange(told_together_, false);
  }
  void End() { --looks_; }
  // Something looks for every end.
  bool are_for_all() const { return looks_ > 0; }

  // Of the node of this number, which has not ended as far as the session was told.
  Tell LookFor(uint64_t number) {
    if (!looked_for_.insert(number).second || looks_ > 0) return Tell::kAsBefore;
    unlooked_ends_ = 0;
    const bool is_far = number > ended_ + kUnlookedEndsMax;
    if (is_far && looked_for_.size() == 1) {
      told_together_ = true;
      return Tell::kTogether;
    }
    return std::exchange(told_together_, false) ? Tell::kAtOnce : Tell::kAsBefore;
  }

  // The session was told of the ends of `count` nodes from `first` on.
  void NoteEnded(uint64_t first, uint64_t count) {
    ended_ += count;
    unlooked_ends_ = looks_ > 0 || !looked_for_.empty() ? 0 : unlooked_ends_ + count;
    auto node = looked_for_.lower_bound(first);
    while (node != looked_for_.end() && *node - first < count) node = looked_for_.erase(node);
  }

  // True: with the next operation, the controller is to be told that ends may be told together.
  bool MayTellTogether() {
    if (told_together_ || looks_ != 0 || !looked_for_.empty()) return false;
    return told_together_ = unlooked_ends_ >= kUnlookedEndsMax;
  }

 private:
  int64_t looks_ = 1;  // for every end: the caller's of the session, until it says otherwise
  std::set<uint64_t> looked_for_;  // nodes that have not ended
  uint64_t ended_ = 0;
  uint64_t unlooked_ends_ = 0;
  bool told_together_ = false;  // as the controller knows, or will
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_END_LOOKS_H_
