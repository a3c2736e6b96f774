// EndLooks: whether anything in a session looks for the ends of its operations. While nothing does, the controller may
// tell of them together: each message that tells of one costs the controller a write and this process a wake.
//
// A session starts as one that is looked at. After kUnlookedEndsMax ends that came without a look, the next operation
// carries the leave to tell together; the next look takes that back, in a message of its own if need be. So a session
// that looks for each end or for every few sends nothing of this.
//
// Pure; not thread-safe. Looks may end before they begin, where two threads meet: their number may pass below 0.
#ifndef GANGWAY_CLIENT_END_LOOKS_H_
#define GANGWAY_CLIENT_END_LOOKS_H_

#include <cstdint>
#include <utility>

namespace gangway::client {

class EndLooks {
 public:
  static constexpr uint64_t kUnlookedEndsMax = 16;

  // True: the controller is to be told that ends are told at once, from now on.
  bool Begin() {
    ++looks_;
    unlooked_ends_ = 0;
    return std::exchange(told_together_, false);
  }
  void End() { --looks_; }

  // The session was told of them.
  void NoteEnds(uint64_t count) { unlooked_ends_ = looks_ > 0 ? 0 : unlooked_ends_ + count; }

  // True: with the next operation, the controller is to be told that ends may be told together.
  bool MayTellTogether() {
    if (told_together_ || looks_ != 0 || unlooked_ends_ < kUnlookedEndsMax) return false;
    return told_together_ = true;
  }

 private:
  int64_t looks_ = 1;  // the caller's of the session, until it says otherwise
  uint64_t unlooked_ends_ = 0;
  bool told_together_ = false;  // as the controller knows, or will
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_END_LOOKS_H_
