// Which frames of a link wait for the end of the event loop's round in which they are sent: a single frame is not
// delayed, and many cost one write and one wake of the peer.
//
// Not thread-safe.
#ifndef GANGWAY_TRANSPORT_LOCAL_ROUND_SENDS_H_
#define GANGWAY_TRANSPORT_LOCAL_ROUND_SENDS_H_

#include <cstdint>
#include <utility>

namespace gangway::transport {

class RoundSends {
 public:
  enum class When {
    kNow,
    kAtRoundEnd,      // with the others, and the end of the round has been asked for
    kAskForRoundEnd,  // likewise, and the caller asks for it
  };
  // Of a frame that is sent in this round of `loop`, which is only compared.
  When Note(const void* loop, uint64_t round) {
    const Round now(loop, round);
    if (std::exchange(sent_in_, now) != now) return When::kNow;
    return std::exchange(flushed_after_, now) == now ? When::kAtRoundEnd : When::kAskForRoundEnd;
  }
  // The round has ended as it was asked for; a later frame of the same round needs another end.
  void NoteRoundEnd() { flushed_after_ = {}; }

 private:
  using Round = std::pair<const void*, uint64_t>;
  Round sent_in_;        // the last in which a frame went at once
  Round flushed_after_;  // the last whose end has been asked for
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_ROUND_SENDS_H_
