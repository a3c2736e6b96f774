// Host buffers of one session: bytes that the client has sent or will fetch, by the client's
// handles.
//
// Bytes from the client may arrive before or after the request that uses them; Take joins the two. A
// request that comes first may name the best destination for the bytes (Place). Bytes for the client
// may be announced, so that it can ask for them before the cluster has sent them. Held bytes,
// including those that the client library is still sending, count against a limit (TM-2).
// Thread-safe; a callback runs on the thread that completes the pair, where it must neither block
// nor copy much, or on the executor that it was given with.
#ifndef GANGWAY_FRONTDOOR_IFRT_HOST_BUFFERS_H_
#define GANGWAY_FRONTDOOR_IFRT_HOST_BUFFERS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/memory_budget.h"
#include "gangway/base/mutex.h"

namespace gangway::ifrt {

// Up to this size, copying beats a thread handoff.
inline constexpr size_t kInlineBytes = size_t{64} << 10;
// Buffers at least this large request a placement before their bytes arrive.
inline constexpr size_t kPlacedBytesMin = size_t{256} << 10;

// Announced buffers per session. jaxlib's client runs at most 64 lookups at a time, and a further one
// blocks the thread that reads its session, so fewer may wait.
inline constexpr size_t kAnnouncedMax = 32;

// Counts bytes of host memory against a limit of its own and, where that is given, against one of the process, too.
class HostBudget {
 public:
  // `name` is for people: "this session".
  HostBudget(std::string name, uint64_t bytes_max, std::shared_ptr<MemoryBudget> all = nullptr)
      : name_(std::move(name)), bytes_max_(bytes_max), all_(std::move(all)) {}

  // Waits for room until `deadline`. RESOURCE_EXHAUSTED, with the sizes, if there is none by then;
  // at once if `bytes` exceed the limit alone.
  absl::Status Acquire(uint64_t bytes, Clock::time_point deadline);
  void Release(uint64_t bytes);
  uint64_t used() const;

 private:
  void ReleaseOwn(uint64_t bytes) GANGWAY_EXCLUDES(mutex_);

  const std::string name_;
  const uint64_t bytes_max_;
  const std::shared_ptr<MemoryBudget> all_;
  mutable Mutex mutex_;
  CondVar released_;
  uint64_t used_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// A piece of host memory, its own or one that it refers to, that returns its bytes to the budget
// when its last reference is dropped.
class HostBytes {
 public:
  // `budget` must have been charged with `size`.
  HostBytes(size_t size, std::shared_ptr<HostBudget> budget)
      : size_(size), budget_(std::move(budget)) {}
  ~HostBytes() { budget_->Release(size_); }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;

  // One of these is to be called once, before the bytes are shared: Refer keeps `size` bytes of
  // existing memory, Make allocates its own, uninitialized.
  void Refer(std::shared_ptr<const char> memory) { memory_ = std::move(memory); }
  char* Make() {
    std::shared_ptr<char[]> own(new char[size_]);
    char* data = own.get();
    memory_ = std::shared_ptr<const char>(std::move(own), data);
    return data;
  }

  size_t size() const { return size_; }
  std::string_view view() const { return {memory_.get(), memory_ == nullptr ? 0 : size_}; }

 private:
  std::shared_ptr<const char> memory_;
  const size_t size_;
  std::shared_ptr<HostBudget> budget_;
};
using HostBytesRef = std::shared_ptr<const HostBytes>;

class HostBuffers : public std::enable_shared_from_this<HostBuffers> {
 public:
  using Ready = std::function<void(absl::StatusOr<HostBytesRef>)>;

  // `all`: of the process, for all sessions together; null: there are no others.
  HostBuffers(uint64_t bytes_max, std::chrono::milliseconds take_limit,
              std::shared_ptr<MemoryBudget> all = nullptr);

  // A buffer that is charged, but has no memory yet. Waits up to the take limit for room.
  absl::StatusOr<std::shared_ptr<HostBytes>> Allocate(uint64_t size);
  // The same without waiting.
  absl::StatusOr<std::shared_ptr<HostBytes>> TryAllocate(uint64_t size);

  // The bytes of `handle`, or the reason why they will never arrive. INVALID_ARGUMENT if the handle
  // has bytes already.
  absl::Status Put(uint64_t handle, absl::StatusOr<HostBytesRef> bytes);

  // Calls `ready` once, when the bytes of `handle` are present, and forgets the handle; on
  // `executor`, if it is given (not owned; outlives this object). DEADLINE_EXCEEDED if they have
  // not arrived within the take limit (detected by the next Expire). Never called after Close().
  void Take(uint64_t handle, Ready ready, Executor* executor = nullptr);

  // The bytes of `handle`, for which a Take waits, are best written to `memory` of `size` bytes.
  struct HostPlace {
    std::shared_ptr<char> memory;  // null: none, or none yet
    size_t size = 0;
  };
  void Place(uint64_t handle, HostPlace place);
  // Returns the place once. Its taker may write there until it has Put the bytes. Until then, bytes
  // from any other memory are rejected: accepting them would use the place while it is written
  // (OB-3).
  HostPlace TakePlace(uint64_t handle);

  // Bytes for the client will come by Fulfil. False: `handle` is in use, or kAnnouncedMax are
  // announced already; then Put them.
  bool Announce(uint64_t handle);
  // The bytes that were announced, or the reason why they will never arrive. Dropped if the handle
  // has been erased.
  void Fulfil(uint64_t handle, absl::StatusOr<HostBytesRef> bytes);

  // Calls `ready` once, in this call or, if the bytes of `handle` are announced, when they or their
  // error are present. NOT_FOUND: it has none, or they are erased. CANCELLED: Close.
  void Lookup(uint64_t handle, Ready ready);
  void Erase(uint64_t handle);

  // Ends the waits that are past their limit.
  void Expire(Clock::time_point now);

  // Drops everything, and ends the Lookups that wait; returns when no callback is running. Not to be
  // called from a callback.
  void Close();

  uint64_t bytes() const { return budget_->used(); }

 private:
  struct Waiting {
    Ready ready;
    Executor* executor = nullptr;
    HostPlace place = {};
    const char* writing = nullptr;  // the place that was given out
  };
  // Runs `waiting` without the lock; Close() waits for it.
  void Call(Waiting waiting, absl::StatusOr<HostBytesRef> bytes) GANGWAY_EXCLUDES(mutex_);
  void Run(Ready ready, absl::StatusOr<HostBytesRef> bytes) GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<HostBudget> budget_;
  const std::chrono::milliseconds take_limit_;
  mutable Mutex mutex_;
  CondVar idle_;
  absl::flat_hash_map<uint64_t, absl::StatusOr<HostBytesRef>> there_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Waiting> waiting_ GANGWAY_GUARDED_BY(mutex_);
  // Each with its Lookup, once that has come.
  absl::flat_hash_map<uint64_t, Ready> announced_ GANGWAY_GUARDED_BY(mutex_);
  std::deque<std::pair<Clock::time_point, uint64_t>> deadlines_
      GANGWAY_GUARDED_BY(mutex_);  // ascending
  int callbacks_running_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_HOST_BUFFERS_H_
