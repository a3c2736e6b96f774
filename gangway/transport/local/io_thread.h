// IoThread: one thread that polls the sockets of local links. It calls each link when its socket is
// readable or writable, and on timer ticks.
//
// Threading: Watch, Change and TickAt from any thread. A Watched is called on the thread and kept
// alive until it Forgets itself, on the thread, before it closes its socket. Destroyed on another
// thread, when nothing is watched. An idle IoThread wakes for ticks only.
#ifndef GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_
#define GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway::transport {

class IoThread {
 public:
  using Clock = std::chrono::steady_clock;

  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void OnReady(uint32_t epoll_events) = 0;
    // Returns the latest time for its next tick.
    virtual Clock::time_point OnTick(Clock::time_point now) = 0;
  };

  // UNAVAILABLE: the system has no descriptors for it.
  static absl::StatusOr<std::shared_ptr<IoThread>> Start();
  ~IoThread();

  uint64_t NextId();  // never 0
  // UNAVAILABLE: the system cannot watch another socket.
  absl::Status Watch(uint64_t id, int fd, uint32_t epoll_events, std::shared_ptr<Watched> watched)
      GANGWAY_EXCLUDES(mutex_);
  void Change(uint64_t id, int fd, uint32_t epoll_events);
  void Forget(uint64_t id, int fd) GANGWAY_EXCLUDES(mutex_);

  // Requests a tick of every Watched at `when` or earlier.
  void TickAt(Clock::time_point when) GANGWAY_EXCLUDES(mutex_);

 private:
  IoThread() = default;
  void Run();
  int WaitMs() GANGWAY_EXCLUDES(mutex_);
  void TickIfDue() GANGWAY_EXCLUDES(mutex_);
  void Wake();
  std::shared_ptr<Watched> Find(uint64_t id) GANGWAY_EXCLUDES(mutex_);

  FileDescriptor epoll_;
  FileDescriptor wake_;
  Mutex mutex_;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ GANGWAY_GUARDED_BY(mutex_) = 1;
  Clock::time_point next_tick_ GANGWAY_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::unordered_map<uint64_t, std::shared_ptr<Watched>> watched_ GANGWAY_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_IO_THREAD_H_
