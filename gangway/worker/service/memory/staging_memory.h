// The host memory of a worker for bytes that are on their way: uploads that have no buffers yet, shards for clients and
// for other workers, operands while they are copied to the heap (borrowed_memory.h). All of it counts against one
// total; one session may take a part of that (TM-2).
//
// What does not fit now waits for its turn: the sessions that wait take turns, and each session's requests keep their
// order. A session that waits too long, none of whose bytes arrive in that time, gets RESOURCE_EXHAUSTED, with the
// sizes (TM-1).
//
// Thread-safe. A charge may outlive the worker: it is often kept by the device runtime.
#ifndef GANGWAY_WORKER_SERVICE_MEMORY_STAGING_MEMORY_H_
#define GANGWAY_WORKER_SERVICE_MEMORY_STAGING_MEMORY_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"

namespace gangway::worker {

class StagingMemory : public std::enable_shared_from_this<StagingMemory> {
 public:
  struct Options {
    uint64_t bytes_max = 0;
    EventLoop* loop = nullptr;  // runs the waits' callbacks; until Close
    std::chrono::milliseconds wait_max{30'000};
  };
  static std::shared_ptr<StagingMemory> Make(Options options) {
    return std::shared_ptr<StagingMemory>(new StagingMemory(options));
  }

  // Bytes that are taken, until it is destroyed.
  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept { *this = std::move(other); }
    Charge& operator=(Charge&& other) noexcept {
      if (this == &other) return *this;
      Reset();
      memory_ = std::move(other.memory_);
      session_ = other.session_;
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Charge() { Reset(); }
    void Reset() {
      if (auto memory = std::move(memory_)) memory->Return(session_, std::exchange(bytes_, 0));
    }
    // `more`: of the same session and memory, unless this is empty.
    void Add(Charge more) {
      if (memory_ == nullptr) {
        *this = std::move(more);
      } else {
        bytes_ += std::exchange(more.bytes_, 0);
        more.memory_.reset();
      }
    }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class StagingMemory;
    Charge(std::shared_ptr<StagingMemory> memory, SessionId session, uint64_t bytes)
        : memory_(std::move(memory)), session_(session), bytes_(bytes) {}

    std::shared_ptr<StagingMemory> memory_;
    SessionId session_;
    uint64_t bytes_ = 0;
  };

  // kInTurn: not while this session waits, whose requests keep their order. kIfRoom: bytes that arrive cannot wait.
  enum class Order { kInTurn, kIfRoom };
  // Takes `bytes` now. RESOURCE_EXHAUSTED, with the sizes: they do not fit, or it is not their turn.
  absl::StatusOr<Charge> Take(SessionId session, uint64_t bytes, Order order)
      GANGWAY_EXCLUDES(mutex_);

  using Taken = std::function<void(absl::StatusOr<Charge>)>;
  // Takes them in this call, or in its turn, on the loop. Not called after Close.
  void Await(SessionId session, uint64_t bytes, Taken taken) GANGWAY_EXCLUDES(mutex_);

  // Ends the waits of a session, with CANCELLED.
  void EndSession(SessionId session) GANGWAY_EXCLUDES(mutex_);
  // Forgets all waits. On the loop, or after it has stopped.
  void Close() GANGWAY_EXCLUDES(mutex_);

  uint64_t bytes_max() const { return options_.bytes_max; }
  uint64_t session_bytes_max() const { return options_.bytes_max / 4 * 3; }
  uint64_t used() const GANGWAY_EXCLUDES(mutex_);
  size_t waiting() const GANGWAY_EXCLUDES(mutex_);

 private:
  struct Wait {
    uint64_t bytes = 0;
    Clock::time_point since;
    Taken taken;
  };
  struct Session {
    uint64_t used = 0;
    std::deque<Wait> waits;
    Clock::time_point moved;  // it returned bytes, or got some after a wait
  };

  explicit StagingMemory(Options options) : options_(options) {}

  void Return(SessionId session, uint64_t bytes) GANGWAY_EXCLUDES(mutex_);
  bool Fits(SessionId session, uint64_t bytes) const GANGWAY_REQUIRES(mutex_);
  Charge ChargeTo(SessionId session, uint64_t bytes) GANGWAY_REQUIRES(mutex_);
  absl::Status TooMuch(SessionId session, uint64_t bytes) const GANGWAY_REQUIRES(mutex_);
  void Grant() GANGWAY_REQUIRES(mutex_);
  void WatchWaits() GANGWAY_REQUIRES(mutex_);
  void Expire() GANGWAY_EXCLUDES(mutex_);
  void Tell(Taken taken, absl::StatusOr<Charge> outcome) GANGWAY_REQUIRES(mutex_);
  void Tidy(SessionId session) GANGWAY_REQUIRES(mutex_);
  // Of the session's oldest wait.
  Clock::time_point Deadline(const Session& session) const {
    return std::max(session.waits.front().since, session.moved) + options_.wait_max;
  }

  const Options options_;
  mutable Mutex mutex_;
  uint64_t used_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::map<SessionId, Session> sessions_ GANGWAY_GUARDED_BY(mutex_);  // that have bytes or waits
  std::deque<SessionId> turns_ GANGWAY_GUARDED_BY(mutex_);            // those that wait, once each
  bool watching_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_MEMORY_STAGING_MEMORY_H_
