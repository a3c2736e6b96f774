// EventQueue: delivers the events of one link to its executor, for implementations of Transport. It
// upholds the promises of transport.h that all transports share: one event at a time, in order,
// on_closed last and once, no event after Close.
//
// Threading: every method from any thread; none blocks. Owned by shared_ptr: a posted task keeps it
// alive. The user's callbacks are released on the executor after the last event, so they may hold
// the link itself.
#ifndef GANGWAY_TRANSPORT_EVENT_QUEUE_H_
#define GANGWAY_TRANSPORT_EVENT_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class EventQueue : public std::enable_shared_from_this<EventQueue> {
 public:
  // `on_fallen` is called once after each NotifyBelow(bytes), on any thread, when fewer than
  // `bytes` are pending.
  explicit EventQueue(std::function<void()> on_fallen = {}) : on_fallen_(std::move(on_fallen)) {}

  // Called once. Frames pushed before it are delivered first.
  void Start(LinkEvents events) GANGWAY_EXCLUDES(mutex_);

  // False: the link has ended and the frame is dropped. `bytes` count as pending until on_frame has
  // returned.
  bool Push(wire::Frame frame, size_t bytes) GANGWAY_EXCLUDES(mutex_);
  void PushWritable() GANGWAY_EXCLUDES(mutex_);

  // Ends the link: on_closed(status) follows the pending events. Only the first call counts, and
  // none after Mute.
  void Finish(const absl::Status& status) GANGWAY_EXCLUDES(mutex_);

  // The owner closed the link: no further event starts, not even on_closed; pending frames are
  // dropped.
  void Mute() GANGWAY_EXCLUDES(mutex_);

  // OK while the link is open, else why it ended.
  absl::Status end() const GANGWAY_EXCLUDES(mutex_);

  size_t pending_bytes() const { return pending_bytes_.load(std::memory_order_relaxed); }
  void NotifyBelow(size_t bytes);

 private:
  struct Pending {
    wire::Frame frame;
    size_t bytes;
  };
  // Of the events to the executor.
  enum class Delivery {
    kNotStarted,
    kIdle,    // nothing is to be delivered
    kPosted,  // a Drain is queued or running
    kOver,    // the callbacks are released
  };

  void PostLocked() GANGWAY_REQUIRES(mutex_);
  void Drain() GANGWAY_EXCLUDES(mutex_);
  void DrainFrames(std::vector<Pending> frames);
  bool is_muted() const { return muted_.load(std::memory_order_acquire); }
  void CheckFallen();

  const std::function<void()> on_fallen_;
  LinkEvents events_;               // written by Start, then accessed by Drain only
  std::atomic<bool> muted_{false};  // by the owner: no further event starts
  std::atomic<size_t> pending_bytes_{0};
  std::atomic<size_t> notify_below_{0};

  mutable Mutex mutex_;
  Delivery delivery_ GANGWAY_GUARDED_BY(mutex_) = Delivery::kNotStarted;
  bool writable_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::vector<Pending> frames_ GANGWAY_GUARDED_BY(mutex_);
  absl::Status end_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_EVENT_QUEUE_H_
