// The memory by which the devices of a host's workers exchange messages. Each worker has one arena, a sealed memfd, and
// in it a region for each of its devices. A device writes only its own region; workers map the arenas of others for
// reading. So a worker that ends at any instruction leaves nobody a lock or half a counter, and its arena vanishes with
// the last mapping.
//
// A region has kSlots messages, which the device writes in turns, and says how far the device has read the messages of
// each other device. A message is identified by its gang (its order position), the collective's number,
// the round (loops call a collective again) and the part, so nobody takes a message for another one.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_ARENA_H_
#define GANGWAY_COLLECTIVE_EXECUTION_ARENA_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/futex.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/collective/execution/shown.h"
#include "gangway/wire/collective_limits.h"

namespace gangway::collective {

inline constexpr size_t kSlots = 4;
// Of an island: workers, and devices of each.
inline constexpr uint32_t kWorkersMax = wire::kCollectiveWorkersMax;
inline constexpr uint32_t kDevicesMax = wire::kCollectiveDevicesMax;

// A device's number among all of its island.
constexpr uint32_t PeerNumber(uint32_t worker, uint32_t device) {
  return worker * kDevicesMax + device;
}

// A device numbers its messages from a random number on: `consumed` may still be of an earlier incarnation of it, and
// then means nothing. A run of messages is shorter than kRunMax.
inline constexpr uint64_t kRunMax = uint64_t{1} << 40;
constexpr bool IsReadUpTo(uint64_t consumed, uint64_t sequence) {
  return consumed - sequence < kRunMax;  // modulo 2^64
}

// What a device that sleeps at another one's pulse waits for: that it has written or shown something, or that it has
// read or will not read. Each wakes only those that wait for it.
enum class Deed : FutexBits { kWritten = 1, kRead = 2 };

// A device's word of where it sleeps, and for what.
constexpr uint32_t SleepsFor(uint32_t peer_number, Deed deed) {
  return (1 + peer_number) | static_cast<uint32_t>(deed) << 30;
}

// Memory of all zeros is a valid region.
struct Region {
  struct Header {
    std::atomic<uint64_t> sequence;  // 0: being written. Of the next message: one more
    std::atomic<uint64_t> gang;
    std::atomic<uint32_t> number;
    std::atomic<uint32_t> round;
    std::atomic<uint32_t> part;
    std::atomic<uint32_t> shows;  // 1: it says where operands and results are; 0: it has bytes
  };
  alignas(64) FutexWord pulse;    // changes whenever something else here does
  std::atomic<uint32_t> awaited;  // SleepsFor: where this device sleeps; 0: nowhere
  std::atomic<uint64_t> left;     // gangs up to this one have ended on this device
  // The last gang that has failed on this device, or never began there. 0: none.
  std::atomic<uint64_t> failed;
  // Gangs up to this one have failed on this device, so what they showed in the heap may be something else by now.
  std::atomic<uint64_t> hidden;
  alignas(64) std::array<Header, kSlots> headers;
  alignas(4096) std::array<std::array<std::byte, kMessageBytes>, kSlots> data;
  // By peer number: the sequence of the last message of that device that this one has read. An arena has pages for the
  // workers that are known (Arena::Reserve).
  alignas(4096) std::array<std::atomic<uint64_t>, size_t{kWorkersMax} * kDevicesMax> consumed;
};
static_assert(sizeof(Region::consumed) == wire::kCollectiveReadsBytes);

// Writes the device's message with this sequence number into its slot: from the constructor on, readers do not take the
// slot for what it was; from Publish on, they find the new message.
class MessageWriter {
 public:
  MessageWriter(Region& region, uint64_t sequence);
  std::byte* data() const { return region_.data[slot_].data(); }
  void Publish(const MessageKey& key, bool shows = false) const;

 private:
  Region& region_;
  const uint64_t sequence_;
  const size_t slot_;
};

// Memory of a worker beside its arena, which the workers that map its arena can read, too: its heap. A device shows
// buffers there by where they are in it.
class ReadableHeap {
 public:
  // This worker's own; `bytes` from `base` on.
  ReadableHeap(const std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  // Another worker's. INVALID_ARGUMENT: not a file in memory. RESOURCE_EXHAUSTED: there are no addresses for it.
  static absl::StatusOr<std::unique_ptr<ReadableHeap>> Map(const FileDescriptor& descriptor);
  ~ReadableHeap();
  ReadableHeap(const ReadableHeap&) = delete;
  ReadableHeap& operator=(const ReadableHeap&) = delete;

  // nullopt: not all of it is here.
  std::optional<uint64_t> OffsetOf(std::span<const std::byte> buffer) const;
  // Null: not all of it is here.
  const std::byte* At(uint64_t offset, size_t bytes) const;

 private:
  const std::byte* const base_;
  const uint64_t bytes_;
  bool is_mapped_ = false;
};

class Arena {
 public:
  // This worker's own, which other processes may map. RESOURCE_EXHAUSTED: the system has no memory for it; the text has
  // the sizes.
  static absl::StatusOr<std::shared_ptr<Arena>> Create(uint32_t devices);
  // Makes sure, in one that was created, that it has memory for what its devices read of the island's first workers,
  // which is 512 bytes for each of its devices and each of these workers. RESOURCE_EXHAUSTED as Create.
  absl::Status Reserve(uint32_t workers) GANGWAY_EXCLUDES(mutex_);
  // Another worker's, for reading. INVALID_ARGUMENT: not an arena for so many devices.
  static absl::StatusOr<std::shared_ptr<Arena>> Map(FileDescriptor descriptor, uint32_t devices);
  // Of the same worker; null: none. A heap takes memory for as long as anyone maps it, so who drops that of a worker
  // that has ended gives its memory back, once no collective reads it. Any thread.
  void SetHeap(std::shared_ptr<const ReadableHeap> heap) GANGWAY_EXCLUDES(mutex_);
  std::shared_ptr<const ReadableHeap> heap() const GANGWAY_EXCLUDES(mutex_);
  // Of this process alone: a mirror (peer.h), or that of a worker that shares no memory. RESOURCE_EXHAUSTED as Create,
  // but its pages are used only once written.
  static absl::StatusOr<std::shared_ptr<Arena>> Anonymous(uint32_t devices);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Region& own(uint32_t device) { return regions_[device]; }  // not of a mapped one
  const Region& region(uint32_t device) const { return regions_[device]; }
  // To members of this worker. Not of a mapped one.
  Shown& shown(uint32_t device) const { return shown_[device]; }
  uint32_t devices() const { return devices_; }
  size_t bytes() const { return devices_ * sizeof(Region); }  // of addresses
  // Bytes of memory that a worker of this many devices has once this many workers are known to it.
  static size_t MemoryFor(uint32_t devices, uint32_t workers);
  int descriptor() const { return descriptor_.get(); }  // only of a created one

  // All that this process has, of any kind: what must not grow.
  static size_t count() { return count_.load(std::memory_order_relaxed); }

 private:
  Arena(FileDescriptor descriptor, Region* regions, uint32_t devices)
      : descriptor_(std::move(descriptor)),
        regions_(regions),
        devices_(devices),
        shown_(std::make_unique<Shown[]>(devices)) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  // `kept`: what descriptor() gives.
  static absl::StatusOr<std::shared_ptr<Arena>> MapAs(int file, FileDescriptor kept,
                                                      uint32_t devices, int access, int flags);
  static absl::Status CheckDevices(uint32_t devices);
  // Of each region, the pages of these bytes of it.
  absl::Status Allocate(size_t begin, size_t end) const;

  static inline std::atomic<size_t> count_ = 0;

  const FileDescriptor descriptor_;
  Region* const regions_;
  const uint32_t devices_;
  const std::unique_ptr<Shown[]> shown_;
  mutable Mutex mutex_;
  std::shared_ptr<const ReadableHeap> heap_ GANGWAY_GUARDED_BY(mutex_);
  uint32_t reserved_ GANGWAY_GUARDED_BY(mutex_) = 0;  // workers
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_ARENA_H_
