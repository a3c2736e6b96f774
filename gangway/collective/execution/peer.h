// A worker as the collectives of another one see it. A worker that shares memory with this one is read in its arena. Of
// any other worker this one keeps a mirror: an arena of its own, into which it writes what that worker says its devices
// have published; and a courier tells that worker what the devices here have published. So collectives read a region
// and write a region, wherever the other device is.
//
// Threading: all from any thread, except that one thread at a time writes a mirror.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_PEER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_PEER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/transport/bulk/byte_ranges.h"

namespace gangway::collective {

class Launch;

using transport::ByteRange;

// A message of a device, as far as it goes to one other worker.
struct Published {
  uint32_t device = 0;  // on its worker
  uint64_t sequence = 0;
  MessageKey key;
  std::vector<ByteRange> ranges;    // in increasing order, without overlaps
  const std::byte* data = nullptr;  // of the whole message
};

// A device has read the messages of another worker's device up to this one.
struct ReadUpTo {
  uint32_t device = 0;
  uint32_t source = 0;  // on the other worker
  uint64_t sequence = 0;
};

// Gangs up to this order position have ended on the device. `failed`: as in Region.
struct LeftUpTo {
  uint32_t device = 0;
  uint64_t order = 0;
  uint64_t failed = 0;
};

// Takes to another worker what devices here publish. Never blocks: what it cannot pass on at once it keeps, which is at
// most what the slots of the devices hold, since a slot is written again only after the other worker's answer.
class Courier {
 public:
  virtual ~Courier() = default;
  // UNAVAILABLE: the way to the worker is broken, and what was sent may not have arrived. `message` null: reads only.
  virtual absl::Status Send(const Published* message, std::span<const ReadUpTo> reads) = 0;
  virtual void SendLeft(std::span<const LeftUpTo> lefts) = 0;
  // A launch with members there begins here.
  virtual void Begin() = 0;
};

// A worker's incarnation, or this worker itself.
class Peer {
 public:
  // `courier` null: it shares memory with this worker, or is this worker.
  Peer(std::string name, uint32_t index, std::shared_ptr<Arena> arena,
       std::shared_ptr<Courier> courier = nullptr)
      : name_(std::move(name)),
        index_(index),
        arena_(std::move(arena)),
        courier_(std::move(courier)) {}

  const std::string& name() const { return name_; }  // for errors
  uint32_t index() const { return index_; }          // in the island
  const Arena& arena() const { return *arena_; }
  Courier* courier() const { return courier_.get(); }

  // Its process has ended, or the way to it is broken: no sender waits for its devices to read, and nothing begins to
  // read its heap, which is given back when the collectives that read it have ended.
  void SetGone() {
    is_gone_.store(true, std::memory_order_relaxed);
    arena_->SetHeap(nullptr);
  }
  bool is_gone() const { return is_gone_.load(std::memory_order_relaxed); }

  // The launch has members there. It is aborted when Fail is called, or was.
  void Join(const std::shared_ptr<Launch>& launch) const GANGWAY_EXCLUDES(mutex_);
  // Aborts the launches that have joined, and those that will.
  void Fail(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // Whether a launch that has joined is not over.
  bool is_busy() const GANGWAY_EXCLUDES(mutex_);

 private:
  void ForgetEnded() const GANGWAY_REQUIRES(mutex_);

  const std::string name_;
  const uint32_t index_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<Courier> courier_;
  std::atomic<bool> is_gone_ = false;
  mutable Mutex mutex_;
  mutable std::vector<std::weak_ptr<Launch>> launches_ GANGWAY_GUARDED_BY(mutex_);
  absl::Status failed_ GANGWAY_GUARDED_BY(mutex_);
};

// The couriers to all workers that need one, for what every worker should hear. Thread-safe.
class Couriers {
 public:
  void Set(uint32_t worker, std::shared_ptr<Courier> courier)
      GANGWAY_EXCLUDES(mutex_);  // null: none
  void SendLeft(std::span<const LeftUpTo> lefts) const GANGWAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Courier>> by_worker_ GANGWAY_GUARDED_BY(mutex_);
};

// A worker's devices in memory of this process, as far as the worker has told of them.
//
// What it takes is not trusted: INVALID_ARGUMENT for what no correct worker says; the stream that brought it is then to
// be closed.
class Mirror {
 public:
  // RESOURCE_EXHAUSTED: the system has no memory for it. Pages are used only once bytes come to them.
  static absl::StatusOr<Mirror> Create(uint32_t worker, uint32_t devices);

  const std::shared_ptr<Arena>& arena() const { return arena_; }

  // `local`: this worker's own arena, whose devices may sleep at the mirror.
  absl::Status Take(const Published& message, std::span<const std::byte> ranges,
                    const Arena& local);
  absl::Status Take(const ReadUpTo& read, const Arena& local, uint32_t local_worker);
  absl::Status Take(const LeftUpTo& left, const Arena& local);

 private:
  Mirror(std::shared_ptr<Arena> arena, uint32_t worker)
      : arena_(std::move(arena)), worker_(worker) {}
  absl::Status CheckDevice(uint32_t device) const;
  void Wake(uint32_t device, Deed deed, const Arena& local);

  std::shared_ptr<Arena> arena_;
  uint32_t worker_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_PEER_H_
