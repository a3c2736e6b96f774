// Activity: what a session has under way, and what follows from it: while an answer is awaited, the links are looked at
// in intervals for peers that are silent, and the host's latency request is held.
//
// Threading: thread-safe; `look` runs on the loop, without a lock. No other lock of the client is taken under this one.
// Failure: none.
#ifndef GANGWAY_CLIENT_ACTIVITY_H_
#define GANGWAY_CLIENT_ACTIVITY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "gangway/base/executor.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/mutex.h"

namespace gangway::client {

class Activity {
 public:
  struct Options {
    EventLoop* loop = nullptr;
    std::chrono::milliseconds interval{0};  // of the looks
    // Looks at the links; whether there is something to look at. After two looks at nothing, the next Begin or Watch
    // begins again: a push may be on its way to a link.
    std::function<bool()> look;
    LatencyRequest* latency_request = nullptr;
  };

  explicit Activity(Options options)
      : options_(std::move(options)), latency_(options_.latency_request) {}

  // From now on the latency request is held while something is under way.
  void UseLatencyRequest() GANGWAY_EXCLUDES(mutex_);

  // An answer is awaited; `count` answers have come, or are given up.
  void Begin() GANGWAY_EXCLUDES(mutex_);
  void End(uint64_t count = 1) GANGWAY_EXCLUDES(mutex_);
  // Whether an answer is awaited.
  bool awaits() const { return awaited_.load(std::memory_order_relaxed) > 0; }

  // Whether operations are under way whose ends the session is told.
  void SetBusy(bool busy) GANGWAY_EXCLUDES(mutex_);

  // Looks at the links from now on, for something that is no answer, such as a push.
  void Watch() GANGWAY_EXCLUDES(mutex_);
  // The session is lost: no further look.
  void Stop() GANGWAY_EXCLUDES(mutex_);

 private:
  void WatchLocked() GANGWAY_REQUIRES(mutex_);
  void NoteLocked() GANGWAY_REQUIRES(mutex_);
  void OnTimer() GANGWAY_EXCLUDES(mutex_);

  const Options options_;
  std::atomic<int64_t> awaited_{0};  // changed under the mutex

  Mutex mutex_;
  bool busy_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool watching_ GANGWAY_GUARDED_BY(mutex_) = false;  // a timer will look
  bool stopped_ GANGWAY_GUARDED_BY(mutex_) = false;
  int idle_looks_ GANGWAY_GUARDED_BY(mutex_) = 0;  // in a row
  LatencyHold latency_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_ACTIVITY_H_
