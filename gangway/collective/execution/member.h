// A launch's members on this worker, and how they run collectives with all others, by the arenas of their workers, or
// by mirrors of them (peer.h).
//
// A collective's member writes what others need into messages of its own region, waits for the messages of others, and
// makes its results from them. Reductions are done in the group's order, one member after another, so that the same
// bits come out whatever the timing and wherever the members are. Small operands are reduced by every member; of large
// ones each reduces a part, and the parts are gathered. A slot is written again when all that read it have done so, or
// have left its gang.
//
// Waits look at memory for a short time, then sleep. A wait ends with an error when the launch is aborted, or after the
// limit. What others do never ends this process, and nobody waits for a lock that another process holds.
//
// Threading: Member::Run on one thread at a time; all else from any.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/flight_record.h"
#include "gangway/collective/execution/peer.h"
#include "gangway/collective/execution/places.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/collective/execution/unsaid_reads.h"

namespace gangway::collective {

class Exchange;
class Launch;

// What a member waits for another device to do.
struct Awaited {
  Deed deed = Deed::kWritten;
  MessageKey key;         // kWritten: of the message. kRead: the message's gang is all that counts
  uint64_t sequence = 0;  // kRead: of the message
};

// A member that sleeps until another one has come as far.
struct Waiting {
  uint64_t gang = 0;         // its ordinal
  uint64_t wait = 0;         // larger than those of the device's earlier waits
  uint32_t number = 0;       // of the collective in its plan
  uint32_t round = 0;        // calls of this collective by the member before this one
  std::string collective;    // PlannedCollective::Name
  std::string peer;          // the worker of the other member
  uint32_t peer_worker = 0;  // its index
  uint32_t peer_device = 0;
  bool is_mirrored = false;        // the other worker shares no memory with this one
  std::optional<Awaited> awaited;  // nothing: the reason of a failure
  Clock::time_point since;
};

// Of a device that may be one of several that wait for each other.
struct WaitQuestion {
  uint64_t wait = 0;
  // A deed of this device that the one with the number `by` awaits.
  struct Owed {
    Awaited deed;
    uint32_t by = 0;
  };
  std::optional<Owed> owed;
};

// A gang, as its members on all workers name it.
struct GangName {
  uint64_t place = 0;    // never 0; larger than those of all gangs before it, on any worker
  uint64_t ordinal = 0;  // for people
};

// Whom a message is for: members on the sender's own worker may read its buffers instead (shown.h).
enum class Reach { kAll, kElsewhere };

// What a device of this worker keeps from launch to launch.
class LocalDevice {
 public:
  // `on_long_wait`: a member has waited here for kLongWait; once for each wait, with the gang's ordinal, on the
  // member's thread.
  LocalDevice(std::shared_ptr<Arena> arena, uint32_t worker, uint32_t device,
              std::shared_ptr<const Couriers> couriers,
              std::function<void(uint64_t gang)> on_long_wait = nullptr);
  static constexpr std::chrono::milliseconds kLongWait{250};

  // A gang is queued on the device, in the order of the places; and has ended there, or never will begin.
  enum class Ending {
    kComplete,  // well, and it has read all messages to it
    kUnread,  // well, but perhaps it has not read all: others are told, so that no sender waits for it
    kEarly,  // it has failed, or did not begin: others are told
  };
  void Enter(uint64_t place) GANGWAY_EXCLUDES(mutex_);
  void Leave(uint64_t place, Ending ending) GANGWAY_EXCLUDES(mutex_);
  // No gang will begin at this place on these devices of one worker; null: none of them. Other workers hear it once for
  // all devices.
  static void Skip(std::span<const std::shared_ptr<LocalDevice>> devices, uint64_t place);
  // What the member that runs here sleeps for, if it does. Any thread.
  std::optional<Waiting> waiting() const GANGWAY_EXCLUDES(mutex_);
  // Calls `held` on the member's thread if the member is still in the wait, looks once more and finds that it has to
  // wait on, and its device has not done yet what it owes. Otherwise drops `held`: the member, or another one, goes on.
  // Any thread.
  void Ask(const WaitQuestion& question, std::function<void()> held) GANGWAY_EXCLUDES(mutex_);
  // How many sleeps missed their wake: they ended at their limit, and what they waited for had come before. Call it
  // only while no member runs.
  uint32_t overslept() const { return overslept_; }

 private:
  friend class Exchange;
  friend class Member;
  struct Sent {
    uint64_t sequence = 0;
    PositionList readers;
    Reach reach = Reach::kAll;
    // Of its launch, which has perhaps ended. No places: nothing is in the slot.
    uint64_t gang = 0;  // its place
    std::shared_ptr<const Places> places;
    std::shared_ptr<const std::atomic<bool>> is_aborted;
  };

  // What other workers are to be told of it; always something if it is not kComplete.
  std::optional<LeftUpTo> LeaveHere(uint64_t place, Ending ending) GANGWAY_EXCLUDES(mutex_);
  Region& region() { return arena_->own(device_); }
  void Pulse() { region().pulse.fetch_add(1, std::memory_order_seq_cst); }
  // The member that sleeps here has looked since it was asked.
  void Answer() GANGWAY_EXCLUDES(mutex_);
  bool HasDone(const WaitQuestion::Owed& owed);
  void SetLeft(uint64_t place);
  // Others wait for the reason of this gang's failure, and not only for what this device does in it.
  void SetFailed(uint64_t place) GANGWAY_REQUIRES(mutex_);
  // The same for a gang that this device may have ended well. Call it before overwriting the gang's messages.
  void FailLate(uint64_t place) GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<Arena> arena_;
  const uint32_t number_;
  const uint32_t device_;
  const std::shared_ptr<const Couriers> couriers_;
  const std::function<void(uint64_t gang)> on_long_wait_;
  UnsaidReads reads_;
  // Used by the member that runs now: launches of one device do not overlap.
  uint64_t sequence_;  // of its last message
  std::array<Sent, kSlots> sent_;
  uint32_t overslept_ = 0;
  uint32_t slept_for_ = ~uint32_t{0};  // the number of the device whose message it last slept for
  mutable Mutex mutex_;
  struct Sleep {
    std::shared_ptr<const Launch> launch;
    uint32_t number = 0;
    uint32_t round = 0;
    Place place;
    std::optional<Awaited> awaited;
    Clock::time_point since;
    uint64_t wait = 0;
    WaitQuestion question;
    std::function<void()> held;  // null: it is not asked
  };
  std::optional<Sleep> sleep_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t waits_ GANGWAY_GUARDED_BY(mutex_) = 0;        // so far
  std::atomic<bool> is_asked_ = false;                   // sleep_ has a question
  std::set<uint64_t> gangs_ GANGWAY_GUARDED_BY(mutex_);  // queued or running, by place
  uint64_t last_gang_ GANGWAY_GUARDED_BY(mutex_) = 0;
  // The last gang of whose end others are to be told, once the earlier ones that are under way have ended. 0: none.
  uint64_t to_tell_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// What the members of a launch on one worker share.
class Launch {
 public:
  // It is aborted when the way to one of its workers breaks.
  static std::shared_ptr<Launch> Begin(std::shared_ptr<const Plan> plan,
                                       std::shared_ptr<const Places> places, GangName gang,
                                       std::chrono::milliseconds wait_max);

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Places>& places() const { return places_; }
  const GangName& gang() const { return gang_; }
  std::chrono::milliseconds wait_max() const { return wait_max_; }
  bool needs_couriers() const { return !places_->far_peers().empty(); }
  // Those that share memory with this worker, and its own.
  size_t members_of_host() const { return places_->positions_of_host(); }
  // There are more of its members on workers that share memory than cores, or the system does not say how many: what
  // one of them waits for hardly comes while it looks.
  bool is_crowded() const { return is_crowded_; }
  // With the threads that tell their workers of the launch.
  bool is_crowded_at_first() const { return is_crowded_at_first_; }

  // Ends the collectives of its members here, those that wait and those to come. The first reason stays.
  void Abort(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // All its members on this worker have ended well. From now on Abort does nothing, so their messages stay until they
  // are read. Errors: the reason of an earlier abort; DATA_LOSS: a peer is gone, so messages may be lost.
  absl::Status End() GANGWAY_EXCLUDES(mutex_);
  bool is_aborted() const { return is_aborted_->load(std::memory_order_acquire); }
  std::shared_ptr<const std::atomic<bool>> abort_flag() const { return is_aborted_; }
  absl::Status reason() const GANGWAY_EXCLUDES(mutex_);  // OK: not aborted

  // Notes an operand that all members could have read in place, were it in this worker's heap. At most 256 are kept.
  void NoteOutsideHeap(const std::byte* operand) GANGWAY_EXCLUDES(mutex_);
  std::vector<const std::byte*> outside_heap() const GANGWAY_EXCLUDES(mutex_);

 private:
  Launch(std::shared_ptr<const Plan> plan, std::shared_ptr<const Places> places, GangName gang,
         std::chrono::milliseconds wait_max);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<const Places> places_;
  const GangName gang_;
  const std::chrono::milliseconds wait_max_;
  const bool is_crowded_, is_crowded_at_first_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
  mutable Mutex mutex_;
  absl::Status reason_ GANGWAY_GUARDED_BY(mutex_);
  bool has_ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::vector<const std::byte*> outside_heap_ GANGWAY_GUARDED_BY(mutex_);
};

class Member {
 public:
  // `device_id`: of the device in the cluster, for the flight recorder.
  Member(std::shared_ptr<Launch> launch, std::shared_ptr<LocalDevice> device, uint32_t position,
         uint32_t device_id = 0);
  ~Member();

  // One collective. The operands and results are those of the program's call, without the chain. An all-reduce
  // may write over its own operand, and a ragged exchange over the operand with its result's former contents. Errors:
  // INVALID_ARGUMENT: the call does not fit the plan, or the positions do not run the same collectives in one order;
  // INTERNAL: any other overlap of a result and an operand; DEADLINE_EXCEEDED: a member did not come; the reason of an
  // abort; UNAVAILABLE: another member was aborted while this one read its message.
  absl::Status Run(int64_t number, std::span<const std::span<const std::byte>> operands,
                   std::span<const std::span<std::byte>> results);

 private:
  friend class Exchange;

  // Where a message is.
  struct Found {
    const std::byte* data = nullptr;
    const Region::Header* header = nullptr;
    uint64_t sequence = 0;
    bool shows = false;
  };

  const Place& PlaceOf(uint32_t position) const { return (*launch_->places())[position]; }
  // Whether it is a device of this worker.
  bool IsHere(const Place& place) const { return &place.peer->arena() == device_->arena_.get(); }
  // Waits until `ready`, which a deed of the device at `place` makes true. On this worker only the kind of the deed is
  // needed.
  absl::Status Await(const Place& place, const Awaited& awaited, absl::FunctionRef<bool()> ready);
  absl::Status AwaitAsleep(const Place& place, const Awaited& awaited,
                           absl::FunctionRef<bool()> ready);
  absl::Status Sleep(const Place& place, Deed deed, absl::FunctionRef<bool()> ready);
  // Runs `body`, which sleeps at `place`, while `waiting` reports that. Sends the device's unsaid reads first.
  absl::Status Asleep(const Place& place, const std::optional<Awaited>& awaited,
                      absl::FunctionRef<absl::Status()> body);
  // Of the collective that runs, for errors.
  std::string CollectiveName() const { return launch_->plan().at(number_).Name(); }
  // Adds what the reader of this rank needs of a message, in increasing order.
  using NeedOf = absl::FunctionRef<void(size_t rank, std::vector<ByteRange>&)>;

  // Of the message that has just been written. It does not keep the launch, so that this is over when its members are.
  LocalDevice::Sent SentNow(const PositionList& readers, Reach reach) const;
  // Whether the device is known to have ended this launch well: what it has not done by then it never will.
  bool HasEndedWell(const Place& place) const;
  // Whether the reader has read the device's messages up to this one, or never will.
  bool IsRead(const Place& reader, const LocalDevice::Sent& sent) const;
  static Awaited ReadOf(const LocalDevice::Sent& sent);
  // The next slot, once its message has been read.
  absl::StatusOr<MessageWriter> BeginMessage();
  absl::Status EndMessage(const MessageWriter& message, const MessageKey& key,
                          const PositionList& readers, Reach reach, NeedOf need);
  // A message that has no bytes, or says only where others find them in this worker's heap. To workers of this host.
  void EndShowing(const MessageWriter& message, const MessageKey& key, const PositionList& readers);
  // Until the readers on other workers have read all that this device has sent.
  absl::Status AwaitReadersElsewhere(const PositionList& readers);
  // What the launch has shown is not valid any more.
  void Hide() const;
  // What was read in the source's heap was what it showed.
  absl::Status CheckShown(uint32_t source);
  // The error of a launch whose source has left it: the reason, if that comes.
  absl::Status AwaitGone(uint32_t source);
  // This worker's heap, if all members of the launch can read it; else null.
  std::shared_ptr<const ReadableHeap> HeapToShow() const {
    return launch_->needs_couriers() ? nullptr : device_->arena_->heap();
  }
  absl::Status SendByCourier(const MessageWriter& message, const MessageKey& key,
                             const PositionList& readers, NeedOf need);
  absl::StatusOr<Found> Receive(uint32_t source, const MessageKey& key);
  // What was read was the message.
  absl::Status CheckStays(uint32_t source, const Found& found);
  // The same, and its sender may write over it. INVALID_ARGUMENT: a later message of the sender was read before.
  absl::Status Consume(uint32_t source, const Found& found);
  absl::Status OutOfOrder(uint32_t source) const;
  // The reason of the launch's failure, if it comes by the limit, or soon after the peer was gone.
  absl::Status AwaitReason(const Place& place, const absl::Status& otherwise);
  // Wakes those of `positions` that wait for this deed of this device.
  void Wake(std::span<const uint32_t> positions, Deed deed);

  const std::shared_ptr<Launch> launch_;
  const std::shared_ptr<LocalDevice> device_;
  const uint32_t position_;
  std::vector<uint32_t> rounds_;  // by collective
  uint32_t number_ = 0;           // of the collective that runs
  // Those that it reads in a collective have come, or it has ended one. Before that, whom this one awaits may not have
  // been told of the gang, and the threads that do so want the core.
  bool has_met_ = false;
  FlightRecord flight_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_
