// Slot: holds one shard on one device, and exists before the shard's contents do. Its producer
// fills or fails it once; readers wait for that with a deadline. Thread-safe. While a slot holds a
// buffer, its bytes are charged to the ledger.
//
// A buffer in a slot is itself a future (device.h): "filled" means that the work that produces the
// contents is enqueued, not that it has run. An error of that work reaches the slot later, by Fail.
#ifndef GANGWAY_STORE_SLOT_H_
#define GANGWAY_STORE_SLOT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/device/device.h"
#include "gangway/store/ledger.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::store {

// Whether another slot also holds the buffer: a shared buffer must not be donated.
enum class Sharing { kOwned, kShared };

// Identifies the shard of a slot; constant.
struct SlotName {
  StorageId storage;
  uint32_t shard = 0;
  int device = 0;  // local index
  SessionId session;
  uint64_t bytes = 0;

  std::string Text() const;  // "shard 3 of storage 17 on local device 1"
};

struct Content {
  std::shared_ptr<device::Buffer> buffer;
  Sharing sharing = Sharing::kOwned;
  // The bytes of another owner that are the buffer's memory (HostSemantics::kZeroCopy). Expired once the runtime no
  // longer uses these bytes: it has copied them, or the buffer was donated or dropped.
  std::weak_ptr<const std::byte> borrowed;
};

// A buffer, and the memory that it borrows. The memory stays as long as this does.
struct Borrower {
  std::shared_ptr<device::Buffer> buffer;
  std::shared_ptr<const std::byte> bytes;
};

class Slot {
 public:
  Slot(SlotName name, std::shared_ptr<Ledger> ledger);
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  const SlotName& name() const { return name_; }

  // The last gang of those that this shard comes from, by programs on its own device, which was alone in the device
  // (worker/service/device/device_thread.h); 0: none. Of the event loop.
  Ordinal gang_alone() const { return gang_alone_; }
  void SetGangAlone(Ordinal gang) { gang_alone_ = gang; }

  // Stores the buffer, or drops it if the slot is already settled.
  void Fill(std::shared_ptr<device::Buffer> buffer, Sharing sharing,
            std::weak_ptr<const std::byte> borrowed = {}) GANGWAY_EXCLUDES(mutex_);

  // Notes that a gang has read the contents at one of `places`, if their buffer borrows memory there. From the second
  // gang on, returns the buffer and the memory, for a copy; after that nothing, unless PutBack is called.
  std::optional<Borrower> NoteReadAt(std::span<const std::byte* const> places, Ordinal gang)
      GANGWAY_EXCLUDES(mutex_);
  // Both do nothing if the slot does not hold the original buffer any more. The copy is this slot's alone, so it is
  // owned, even if the original was shared.
  void PutBack(const Borrower& original) GANGWAY_EXCLUDES(mutex_);
  void Replace(const device::Buffer& original, std::shared_ptr<device::Buffer> copy)
      GANGWAY_EXCLUDES(mutex_);

  // Fails the slot and drops its buffer, if any. The first failure stays (ER-1).
  void Fail(const wire::Failure& failure) GANGWAY_EXCLUDES(mutex_);

  // Waits until the slot is settled, and returns the contents. Errors: the failure itself (as
  // wire::ToStatus); INVALID_ARGUMENT when emptied; DEADLINE_EXCEEDED, which names the shard.
  absl::StatusOr<Content> Wait(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);

  using Settled = std::function<void(absl::StatusOr<Content>)>;

  // Like Share, without waiting: the contents, present or future, count as shared from this call
  // on. `settled` receives them, or the error that Wait would return, once the slot is settled. It
  // runs in this call or on the thread that settles the slot, and must not call the slot.
  void ShareWhenSettled(Settled settled) GANGWAY_EXCLUDES(mutex_);

  // Whether Wait returns at once.
  bool settled() const GANGWAY_EXCLUDES(mutex_);

  // The failure, if the slot has failed. Does not wait.
  std::optional<wire::Failure> failure() const GANGWAY_EXCLUDES(mutex_);

  // Drops the buffer, which was donated to a launch. Later reads are INVALID_ARGUMENT.
  void Empty() GANGWAY_EXCLUDES(mutex_);

  // Marks the buffer as shared, and returns it for another slot. Errors: see Wait.
  absl::StatusOr<Content> Share(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);

  // Likewise, for one that reads the buffer later, until its EndRead. Errors, after which none is to come: see Wait.
  absl::StatusOr<Content> BeginRead(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);
  void EndRead() GANGWAY_EXCLUDES(mutex_);

 private:
  enum class State { kPromised, kFilled, kFailed, kEmptied };

  std::shared_ptr<device::Buffer> TakeOut(State next) GANGWAY_REQUIRES(mutex_);
  absl::StatusOr<Content> Outcome() const GANGWAY_REQUIRES(mutex_);  // of a settled slot
  // The outcome and the callbacks that wait for it. Tell runs them, outside the lock.
  struct Notice {
    std::vector<Settled> waiting;
    std::optional<absl::StatusOr<Content>> outcome;
    void Tell();
  };
  Notice TakeNotice() GANGWAY_REQUIRES(mutex_);

  const SlotName name_;
  const std::shared_ptr<Ledger> ledger_;
  Ordinal gang_alone_;
  mutable Mutex mutex_;
  CondVar settled_;
  State state_ GANGWAY_GUARDED_BY(mutex_) = State::kPromised;
  Content content_ GANGWAY_GUARDED_BY(mutex_);
  int reads_ GANGWAY_GUARDED_BY(mutex_) = 0;         // that have begun and not ended
  Ordinal first_reader_ GANGWAY_GUARDED_BY(mutex_);  // of what it borrows
  std::unique_ptr<wire::Failure> failure_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<Settled> waiting_ GANGWAY_GUARDED_BY(mutex_);  // while promised
};

}  // namespace gangway::store

#endif  // GANGWAY_STORE_SLOT_H_
