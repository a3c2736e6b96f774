// LatencyRequest: asks Linux to keep this host's idle cores awake (PM QoS) while something is under way in the process.
// A core that sleeps costs tens of microseconds to wake, and an awaited call has some six wakes
// (docs/internals/latency.md). The request is the open file /dev/cpu_dma_latency with the value 0; the kernel drops it
// with the file, so a process that dies leaves nothing behind.
//
// A process has one. Each part that has work (a service, a client) owns a LatencyHold and says there whether something
// is under way. The first part that has work opens the file. After the last, the file stays open for the linger, so
// that the calls of a script do not open it one by one; then a timer closes it. The timer exists only while the file is
// open: an idle process holds nothing and wakes for nothing.
//
// Threading: LatencyRequest is thread-safe, and waits for nothing but short system calls. A LatencyHold belongs to one
// thread, or to a lock of its owner.
//
// Failure: a file that cannot be opened is not used, silently and for good; `gangway doctor` says so. Without a free
// descriptor, the next period of work tries again.
//
// Forks: the child holds nothing; its copy of the descriptor is closed at the fork. In a World, no file is opened.
#ifndef GANGWAY_BASE_LATENCY_REQUEST_H_
#define GANGWAY_BASE_LATENCY_REQUEST_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"

namespace gangway {

// The file of this process's requests. GANGWAY_LATENCY_REQUEST in the environment names another one; its value 0 turns
// requests off, and the result is empty.
std::string LatencyRequestFile();

// A request that lasts as long as the descriptor. None: the file cannot be opened or written, for the reason in errno.
FileDescriptor OpenLatencyRequest(const std::string& file);

class LatencyHold;

class LatencyRequest {
 public:
  // Opening takes some 50 us, so even work that comes once per linger loses a thousandth of its time by it.
  static constexpr std::chrono::milliseconds kLinger{50};

  // This process's request, with the file that its environment named at the first call. Lives until the process ends.
  static LatencyRequest& OfProcess();

  // `file` empty: none. Outlives the loops of its holds.
  explicit LatencyRequest(std::string file, std::chrono::milliseconds linger = kLinger);

  bool is_open() const GANGWAY_EXCLUDES(mutex_);

 private:
  friend class LatencyHold;

  void Begin() GANGWAY_EXCLUDES(mutex_);
  // The hold's loop runs the timer that closes the file.
  void End(const LatencyHold* hold, EventLoop* loop) GANGWAY_EXCLUDES(mutex_);
  // The hold is destroyed, and its loop may have dropped the timer.
  void Leave(const LatencyHold* hold, bool was_busy) GANGWAY_EXCLUDES(mutex_);

  void Open() GANGWAY_REQUIRES(mutex_);
  void Close() GANGWAY_REQUIRES(mutex_);
  void Arm(const LatencyHold* hold, EventLoop* loop) GANGWAY_REQUIRES(mutex_);
  void OnTimer(uint64_t timer, const LatencyHold* hold, EventLoop* loop) GANGWAY_EXCLUDES(mutex_);
  // The lock is held over a fork, so that the child finds the state whole.
  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

  const std::string file_name_;
  const std::chrono::milliseconds linger_;
  std::atomic<bool> usable_;  // false: stays so

  mutable Mutex mutex_;
  uint64_t busy_holds_ GANGWAY_GUARDED_BY(mutex_) = 0;
  // This period of work has its request, or failed to get one. Never false while a hold is busy.
  bool is_begun_ GANGWAY_GUARDED_BY(mutex_) = false;
  FileDescriptor file_ GANGWAY_GUARDED_BY(mutex_);
  Clock::time_point idle_since_ GANGWAY_GUARDED_BY(mutex_);           // while no hold is busy
  const LatencyHold* timer_of_ GANGWAY_GUARDED_BY(mutex_) = nullptr;  // null: no timer is armed
  uint64_t timer_ GANGWAY_GUARDED_BY(mutex_) = 0;                     // number of the latest one
};

class LatencyHold {
 public:
  // Holds nothing before Use. `request` outlives this.
  explicit LatencyHold(LatencyRequest* request) : request_(request) {}
  ~LatencyHold();  // on the loop, or after the loop has stopped
  LatencyHold(const LatencyHold&) = delete;
  LatencyHold& operator=(const LatencyHold&) = delete;

  // From now on, Set counts.
  void Use(EventLoop* loop);

  // Whether the owner has something under way. Costs a comparison if that is as before, else a lock; system calls only
  // for the first busy hold of the process after a linger without any.
  void Set(bool busy) {
    if (busy != is_busy_ && loop_ != nullptr) Change(busy);
  }

 private:
  void Change(bool busy);
  // In a forked child, the parent's holds do nothing.
  bool IsOrphan() const { return ForkGeneration() != fork_generation_; }

  LatencyRequest* const request_;
  const uint64_t fork_generation_ = ForkGeneration();
  EventLoop* loop_ = nullptr;
  bool is_busy_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_LATENCY_REQUEST_H_
