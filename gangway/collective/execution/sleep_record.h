// What the member that runs on a device sleeps for, if it does; and the question whether it still has to, which the
// member answers itself, because only its own thread knows what its device has written and read.
//
// Thread-safe. Begin, End and Answer: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SLEEP_RECORD_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SLEEP_RECORD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/launch.h"
#include "gangway/collective/execution/peer_devices.h"
#include "gangway/collective/execution/waiting.h"

namespace gangway::collective {

// Whether the header is of the message with this key. Only the device's own thread, or one that has acquired the
// message's sequence number, may ask.
bool IsOf(const Region::Header& header, const MessageKey& key);

class SleepRecord {
 public:
  struct Sleep {
    std::shared_ptr<const Launch> launch;
    uint32_t number = 0;
    uint32_t round = 0;
    PeerDevice device;
    std::optional<Awaited> awaited;
  };
  void Begin(Sleep sleep) GANGWAY_EXCLUDES(mutex_);
  void End() GANGWAY_EXCLUDES(mutex_);

  // Nothing: the member does not sleep.
  std::optional<Waiting> waiting() const GANGWAY_EXCLUDES(mutex_);
  // Calls `held` on the member's thread if the member is still in the wait, looks once more and finds that it has to
  // wait on, and its device has not done yet what it owes. Otherwise drops `held`: the member, or another one, goes on.
  void Ask(const WaitQuestion& question, std::function<void()> held) GANGWAY_EXCLUDES(mutex_);
  // The member looks at this before it looks whether it has to wait on, and answers after that.
  bool is_asked() const { return is_asked_.load(std::memory_order_seq_cst); }
  void Answer(const Region& own) GANGWAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::optional<Sleep> sleep_ GANGWAY_GUARDED_BY(mutex_);
  Clock::time_point since_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t waits_ GANGWAY_GUARDED_BY(mutex_) = 0;  // so far; the number of the last one
  WaitQuestion question_ GANGWAY_GUARDED_BY(mutex_);
  std::function<void()> held_ GANGWAY_GUARDED_BY(mutex_);  // null: it is not asked
  std::atomic<bool> is_asked_ = false;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SLEEP_RECORD_H_
