// Poller: waits for sockets and other descriptors, on behalf of one thread (epoll). EventLoop waits in one once
// a descriptor is watched with it; a transport's own thread is little more than one.
//
// Threading: Poll on the thread that owns the Poller, one call at a time; all else from any thread. The owner may
// change between two calls (EventLoop::Await). A Watched is called by Poll, and kept alive until it is forgotten; a
// call that has begun may end after Forget has returned.
#ifndef GANGWAY_BASE_POLLER_H_
#define GANGWAY_BASE_POLLER_H_

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway {

// epoll_wait until `deadline` (Clock::time_point::max(): none), to a fraction of a millisecond where the kernel can.
int WaitForEvents(int epoll, std::span<epoll_event> events, Clock::time_point deadline);

class Poller {
 public:
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void OnReady(uint32_t epoll_events) = 0;
  };

  // UNAVAILABLE: the system has no descriptors for it.
  static absl::StatusOr<std::shared_ptr<Poller>> Create();

  // A new number, never 0, for what is watched.
  uint64_t NextId() GANGWAY_EXCLUDES(mutex_);
  // UNAVAILABLE: the system cannot watch another descriptor.
  absl::Status Watch(uint64_t id, int fd, uint32_t epoll_events, std::shared_ptr<Watched> watched)
      GANGWAY_EXCLUDES(mutex_);
  // Reports what is ready again, also to an edge-triggered watch.
  void Change(uint64_t id, int fd, uint32_t epoll_events);
  void Forget(uint64_t id, int fd) GANGWAY_EXCLUDES(mutex_);

  // Waits until something is ready, until Wake, or until `deadline` (Clock::time_point::max(): none); then calls each
  // Watched that is ready once.
  void Poll(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);
  // Ends the current Poll, or else the next one, at once.
  void Wake();
  // Ends the Poll that is current at `when`, or else the next one after it. The last call counts. To call it wakes no
  // thread.
  void WakeAt(Clock::time_point when);

  // Of the epoll set, for a PollerGate; readable while something is ready.
  int descriptor() const { return epoll_.get(); }

 private:
  Poller() = default;
  std::shared_ptr<Watched> Find(uint64_t id) GANGWAY_EXCLUDES(mutex_);

  FileDescriptor epoll_;
  // Both edge-triggered, so they are never read.
  FileDescriptor wake_;
  FileDescriptor timer_;
  Mutex mutex_;
  uint64_t next_id_ GANGWAY_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Watched>> watched_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway

#endif  // GANGWAY_BASE_POLLER_H_
