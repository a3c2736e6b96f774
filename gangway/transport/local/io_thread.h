// IoThread: the transport's own thread, which polls the sockets of local links and ticks each link from time to time.
//
// Threading: Watch, Change, Forget and TickAt from any thread. A Watched is called on the thread and kept alive until
// it is forgotten. Destroyed on another thread, when nothing is watched. An idle IoThread wakes for ticks only.
#ifndef GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_
#define GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"
#include "gangway/base/thread.h"

namespace gangway::transport {

class IoThread {
 public:
  class Watched : public Poller::Watched {
   public:
    // Returns the latest time for its next tick.
    virtual Clock::time_point OnTick(Clock::time_point now) = 0;
  };

  // UNAVAILABLE: the system has no descriptors for it.
  static absl::StatusOr<std::shared_ptr<IoThread>> Start();
  ~IoThread();

  uint64_t NextId() { return poller_->NextId(); }
  // UNAVAILABLE: the system cannot watch another socket.
  absl::Status Watch(uint64_t id, int fd, uint32_t epoll_events, std::shared_ptr<Watched> watched)
      GANGWAY_EXCLUDES(mutex_);
  void Change(uint64_t id, int fd, uint32_t epoll_events) { poller_->Change(id, fd, epoll_events); }
  void Forget(uint64_t id, int fd) GANGWAY_EXCLUDES(mutex_);

  // Requests a tick of every Watched at `when` or earlier.
  void TickAt(Clock::time_point when) GANGWAY_EXCLUDES(mutex_);

 private:
  explicit IoThread(std::shared_ptr<Poller> poller) : poller_(std::move(poller)) {}
  void Run();
  Clock::time_point next_tick() const GANGWAY_EXCLUDES(mutex_);
  void TickIfDue() GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<Poller> poller_;
  mutable Mutex mutex_;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  Clock::time_point next_tick_ GANGWAY_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::unordered_map<uint64_t, std::shared_ptr<Watched>> ticked_ GANGWAY_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_
