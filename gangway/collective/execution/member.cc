// Implementation of member.h.
#include "gangway/collective/execution/member.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/random.h"
#include "gangway/base/status.h"
#include "gangway/base/world.h"
#include "gangway/collective/execution/exchange.h"

namespace gangway::collective {
namespace {

constexpr int kLooks = 200;  // some microseconds
constexpr int kLooksWithYield = 50;
// A sleeping wait looks again for what has no pulse: the end of a peer, and an abort that came just before the sleep,
// or while it sleeps at a device that is not of its launch (a reader of an earlier launch's message).
constexpr std::chrono::milliseconds kSleepMax{100};
// For the reason of a failure to come once a peer is gone, and how often a member that waits for one looks.
constexpr std::chrono::milliseconds kReasonMax{1000};
constexpr std::chrono::milliseconds kLookMax{20};
// Operands outside the heap that a launch notes.
constexpr size_t kOutsideHeapMax = 256;
// Threads that tell a launch's workers of it: its client, and the scheduler.
constexpr size_t kTellers = 2;

// Asking the system takes as long as a small collective. In a World, the same on every machine.
size_t Cores() {
  static const size_t cores = std::thread::hardware_concurrency();
  return World::installed() == nullptr ? cores : 2;
}

bool IsOf(const Region::Header& header, const MessageKey& key) {
  return header.gang.load(std::memory_order_relaxed) == key.gang &&
         header.number.load(std::memory_order_relaxed) == key.number &&
         header.round.load(std::memory_order_relaxed) == key.round &&
         header.part.load(std::memory_order_relaxed) == key.part;
}

// Ranges that are next to each other, or overlap, as one.
std::vector<ByteRange> Joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> joined;
  for (const ByteRange& range : ranges) {
    if (range.bytes == 0) continue;
    const size_t end = joined.empty() ? 0 : joined.back().offset + joined.back().bytes;
    if (joined.empty() || range.offset > end + kSegmentAlignment) {
      joined.push_back(range);
    } else {
      joined.back().bytes = std::max(end, range.offset + range.bytes) - joined.back().offset;
    }
  }
  return joined;
}

}  // namespace

LocalDevice::LocalDevice(std::shared_ptr<Arena> arena, uint32_t worker, uint32_t device,
                         std::shared_ptr<const Couriers> couriers,
                         std::function<void(uint64_t gang)> on_long_wait)
    : arena_(std::move(arena)),
      number_(PeerNumber(worker, device)),
      device_(device),
      couriers_(std::move(couriers)),
      on_long_wait_(std::move(on_long_wait)),
      reads_(device),
      sequence_(RandomBits() >> 2 | 1) {}

void LocalDevice::Enter(uint64_t place) {
  MutexLock lock(mutex_);
  const bool was_idle = gangs_.empty();
  gangs_.insert(place);
  last_gang_ = std::max(last_gang_, place);
  if (!was_idle) return;
  // Gangs between the last one here and this one are not of this device, or never came.
  SetLeft(place - 1);
}

void LocalDevice::Leave(uint64_t place, Ending ending) {
  const std::optional<LeftUpTo> news = LeaveHere(place, ending);
  if (news && couriers_ != nullptr) couriers_->SendLeft({&*news, 1});
}

std::optional<LeftUpTo> LocalDevice::LeaveHere(uint64_t place, Ending ending) {
  LeftUpTo left{.device = device_};
  bool is_news = ending != Ending::kComplete;
  {
    MutexLock lock(mutex_);
    gangs_.erase(place);
    if (is_news) to_tell_ = std::max(to_tell_, place);
    if (ending == Ending::kEarly) SetFailed(place);
    left.place = gangs_.empty() ? last_gang_ : *gangs_.begin() - 1;
    SetLeft(left.place);
    left.failed = region().failed.load(std::memory_order_relaxed);
    // Of its own launch's members here, which has been aborted: one that was about to sleep may have missed that.
    if (ending == Ending::kEarly) FutexWake(region().pulse);
    if (to_tell_ != 0 && left.place >= to_tell_) {
      is_news = true;
      to_tell_ = 0;
    }
  }
  return is_news ? std::optional(left) : std::nullopt;
}

void LocalDevice::SetFailed(uint64_t place) {
  if (place > region().failed.load(std::memory_order_relaxed)) region().failed = place;
}

void LocalDevice::FailLate(uint64_t place) {
  LeftUpTo left{.device = device_};
  {
    MutexLock lock(mutex_);
    SetFailed(place);
    left.place = region().left.load(std::memory_order_relaxed);
    left.failed = region().failed.load(std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
  // Even if another thread has set it, because that thread may not have sent it yet.
  if (couriers_ != nullptr) couriers_->SendLeft({&left, 1});
}

void LocalDevice::SetLeft(uint64_t place) {
  if (region().left.load(std::memory_order_relaxed) == place) return;
  region().left.store(place, std::memory_order_seq_cst);
  Pulse();
  FutexWake(region().pulse, static_cast<FutexBits>(Deed::kRead));
}

void LocalDevice::Skip(std::span<const std::shared_ptr<LocalDevice>> devices, uint64_t place) {
  std::vector<LeftUpTo> lefts;
  const Couriers* couriers = nullptr;
  for (const auto& device : devices) {
    if (device == nullptr) continue;
    device->Enter(place);
    lefts.push_back(*device->LeaveHere(place, Ending::kEarly));
    couriers = device->couriers_.get();
  }
  if (couriers != nullptr) couriers->SendLeft(lefts);
}

std::optional<Waiting> LocalDevice::waiting() const {
  MutexLock lock(mutex_);
  if (!sleep_) return std::nullopt;
  const Peer& peer = *sleep_->place.peer;
  return Waiting{.gang = sleep_->launch->gang().ordinal,
                 .wait = sleep_->wait,
                 .number = sleep_->number,
                 .round = sleep_->round,
                 .collective = sleep_->launch->plan().at(sleep_->number).Name(),
                 .peer = peer.name(),
                 .peer_worker = peer.index(),
                 .peer_device = sleep_->place.device,
                 .is_mirrored = peer.courier() != nullptr,
                 .awaited = sleep_->awaited,
                 .since = sleep_->since};
}

void LocalDevice::Ask(const WaitQuestion& question, std::function<void()> held) {
  Place place;
  {
    MutexLock lock(mutex_);
    if (!sleep_ || sleep_->wait != question.wait) return;
    sleep_->question = question;
    sleep_->held = std::move(held);
    is_asked_.store(true, std::memory_order_seq_cst);
    place = sleep_->place;
  }
  FutexWake(place.region().pulse);  // if it is about to sleep, it looks again soon
}

void LocalDevice::Answer() {
  WaitQuestion question;
  std::function<void()> held;
  {
    MutexLock lock(mutex_);
    is_asked_.store(false, std::memory_order_seq_cst);
    question = sleep_->question;
    held = std::exchange(sleep_->held, nullptr);
  }
  if (held != nullptr && !(question.owed && HasDone(*question.owed))) held();
}

// Only the member's own thread writes what this reads, apart from `left`, which is final for an earlier gang.
bool LocalDevice::HasDone(const WaitQuestion::Owed& owed) {
  const Region& own = region();
  const MessageKey& key = owed.deed.key;
  if (owed.deed.deed == Deed::kRead) {
    return own.left.load(std::memory_order_acquire) >= key.gang ||
           IsReadUpTo(own.consumed[owed.by].load(std::memory_order_acquire), owed.deed.sequence);
  }
  return std::ranges::any_of(own.headers, [&](const Region::Header& header) {
    return header.sequence.load(std::memory_order_acquire) != 0 && IsOf(header, key);
  });
}

Launch::Launch(std::shared_ptr<const Plan> plan, std::shared_ptr<const Places> places,
               GangName gang, std::chrono::milliseconds wait_max)
    : plan_(std::move(plan)),
      places_(std::move(places)),
      gang_(gang),
      wait_max_(wait_max),
      is_crowded_(members_of_host() > Cores()),
      is_crowded_at_first_(members_of_host() + places_->workers_of_host() + kTellers > Cores()) {}

std::shared_ptr<Launch> Launch::Begin(std::shared_ptr<const Plan> plan,
                                      std::shared_ptr<const Places> places, GangName gang,
                                      std::chrono::milliseconds wait_max) {
  std::shared_ptr<Launch> launch(new Launch(std::move(plan), std::move(places), gang, wait_max));
  for (const auto& peer : launch->places()->far_peers()) peer->Join(launch);
  return launch;
}

void Launch::Abort(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (has_ended_ || !reason_.ok()) return;
    reason_ = why;
  }
  is_aborted_->store(true, std::memory_order_release);
  // Its members here may sleep at the pulse of any other; one that has not yet gone to sleep looks again soon.
  for (const Place& place : *places_) FutexWake(place.region().pulse);
}

absl::Status Launch::End() {
  for (const auto& peer : places_->far_peers()) {
    if (!peer->is_gone()) continue;
    Abort(absl::DataLossError(
        absl::StrCat("the collectives of the gang have lost their way to ", peer->name())));
  }
  MutexLock lock(mutex_);
  has_ended_ = reason_.ok();
  return reason_;
}

void Launch::NoteOutsideHeap(const std::byte* operand) {
  MutexLock lock(mutex_);
  if (outside_heap_.size() < kOutsideHeapMax &&
      std::ranges::find(outside_heap_, operand) == outside_heap_.end())
    outside_heap_.push_back(operand);
}

std::vector<const std::byte*> Launch::outside_heap() const {
  MutexLock lock(mutex_);
  return outside_heap_;
}

absl::Status Launch::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

Member::Member(std::shared_ptr<Launch> launch, std::shared_ptr<LocalDevice> device,
               uint32_t position, uint32_t device_id)
    : launch_(std::move(launch)),
      device_(std::move(device)),
      position_(position),
      rounds_(launch_->plan().size()),
      flight_(device_id, launch_->gang().ordinal) {}

Member::~Member() { device_->reads_.Say(); }

absl::Status Member::Await(const Place& place, const Awaited& awaited,
                           absl::FunctionRef<bool()> ready) {
  const bool may_look = has_met_ || !launch_->is_crowded_at_first();
  for (int i = 0; may_look && !launch_->is_crowded() && i < kLooks; ++i) {
    if (ready()) return absl::OkStatus();
    PauseCore();
  }
  for (int i = 0; may_look && i < kLooksWithYield; ++i) {
    if (ready()) return absl::OkStatus();
    if (launch_->is_aborted()) return launch_->reason();
    YieldCore();
  }
  if (ready()) return absl::OkStatus();
  return AwaitAsleep(place, awaited, ready);
}

absl::Status Member::AwaitAsleep(const Place& place, const Awaited& awaited,
                                 absl::FunctionRef<bool()> ready) {
  if (awaited.deed == Deed::kWritten) device_->slept_for_ = place.number();
  return Asleep(place, awaited, [&] { return Sleep(place, awaited.deed, ready); });
}

absl::Status Member::Asleep(const Place& place, const std::optional<Awaited>& awaited,
                            absl::FunctionRef<absl::Status()> body) {
  {
    MutexLock lock(device_->mutex_);
    device_->is_asked_.store(false, std::memory_order_seq_cst);
    device_->sleep_ = {.launch = launch_,
                       .number = number_,
                       .round = rounds_[number_] - 1,  // Run has counted this call
                       .place = place,
                       .awaited = awaited,
                       .since = Clock::now(),
                       .wait = ++device_->waits_};
  }
  device_->reads_.Say();
  absl::Status status = body();
  MutexLock lock(device_->mutex_);
  device_->sleep_ = std::nullopt;
  return status;
}

absl::Status Member::Sleep(const Place& place, Deed deed, absl::FunctionRef<bool()> ready) {
  const Clock::time_point began = Clock::now();
  const FutexWord& pulse = place.region().pulse;
  std::atomic<uint32_t>& awaited = device_->region().awaited;
  bool is_woken = true, has_ended = false, is_long = false;
  while (true) {
    const uint32_t seen = pulse.load(std::memory_order_seq_cst);
    const bool is_asked = device_->is_asked_.load(std::memory_order_seq_cst);  // before it looks
    if (ready()) {
      if (!is_woken) ++device_->overslept_;
      return absl::OkStatus();
    }
    if (launch_->is_aborted()) return launch_->reason();
    if (HasEndedWell(place)) {
      if (has_ended) {
        return absl::InvalidArgumentError(
            absl::StrCat("collective ", CollectiveName(), ": ", place.peer->name(),
                         ", local device ", place.device,
                         ", has ended the program without it; all positions must run the same "
                         "collectives of a program"));
      }
      has_ended = true;
      continue;  // perhaps it came right before that
    }
    if (is_asked) device_->Answer();
    const Clock::duration waited = Clock::now() - began;
    if (waited >= LocalDevice::kLongWait && !std::exchange(is_long, true) &&
        device_->on_long_wait_ != nullptr)
      device_->on_long_wait_(launch_->gang().ordinal);
    if (waited >= launch_->wait_max()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "collective ", CollectiveName(), " has waited for ", place.peer->name(),
          ", local device ", place.device, ", for ", launch_->wait_max().count(), " ms"));
    }
    // Who changes the pulse looks at `awaited` after that: either it sees this, or the pulse is not `seen` any more.
    awaited.store(SleepsFor(place.number(), deed), std::memory_order_seq_cst);
    is_woken = pulse.load(std::memory_order_seq_cst) != seen ||
               FutexWait(pulse, seen, kSleepMax, static_cast<FutexBits>(deed));
    awaited.store(0, std::memory_order_relaxed);
  }
}

void Member::Wake(std::span<const uint32_t> positions, Deed deed) {
  device_->Pulse();
  const uint32_t sleeps = SleepsFor(device_->number_, deed);
  const bool any = std::ranges::any_of(positions, [&](uint32_t position) {
    return PlaceOf(position).region().awaited.load(std::memory_order_seq_cst) == sleeps;
  });
  if (any) FutexWake(device_->region().pulse, static_cast<FutexBits>(deed));
}

bool Member::HasEndedWell(const Place& place) const {
  const Region& region = place.region();
  return region.left.load(std::memory_order_acquire) >= launch_->gang().place &&
         region.failed.load(std::memory_order_acquire) < launch_->gang().place;
}

LocalDevice::Sent Member::SentNow(const PositionList& readers, Reach reach) const {
  return {.sequence = device_->sequence_,
          .readers = readers,
          .reach = reach,
          .gang = launch_->gang().place,
          .places = launch_->places(),
          .is_aborted = launch_->abort_flag()};
}

bool Member::IsRead(const Place& reader, const LocalDevice::Sent& sent) const {
  const Region& region = reader.region();
  return IsReadUpTo(region.consumed[device_->number_].load(std::memory_order_acquire),
                    sent.sequence) ||
         region.left.load(std::memory_order_acquire) >= sent.gang ||
         sent.is_aborted->load(
             std::memory_order_acquire) ||  // readers know that it may be written over
         reader.peer->is_gone();
}

Awaited Member::ReadOf(const LocalDevice::Sent& sent) {
  return {.deed = Deed::kRead, .key = {.gang = sent.gang}, .sequence = sent.sequence};
}

absl::StatusOr<MessageWriter> Member::BeginMessage() {
  const uint64_t sequence = device_->sequence_ + 1;
  LocalDevice::Sent& sent = device_->sent_[sequence % kSlots];
  if (sent.places != nullptr) {
    for (uint32_t position : *sent.readers) {
      const Place& reader = (*sent.places)[position];
      if (reader.number() == device_->number_) continue;
      if (sent.reach == Reach::kElsewhere && IsHere(reader)) continue;
      GANGWAY_RETURN_IF_ERROR(Await(reader, ReadOf(sent), [&] { return IsRead(reader, sent); }));
    }
    if (sent.is_aborted->load(std::memory_order_acquire)) device_->FailLate(sent.gang);
    sent = {};
  }
  // The readers of an aborted launch are not waited for, so without this its operands would go to couriers at once.
  if (launch_->is_aborted()) return launch_->reason();
  return MessageWriter(device_->region(), sequence);
}

absl::Status Member::EndMessage(const MessageWriter& message, const MessageKey& key,
                                const PositionList& readers, Reach reach, NeedOf need) {
  const uint64_t sequence = ++device_->sequence_;
  message.Publish(key);
  device_->sent_[sequence % kSlots] = SentNow(readers, reach);
  Wake(*readers, Deed::kWritten);
  return launch_->needs_couriers() ? SendByCourier(message, key, readers, need) : absl::OkStatus();
}

void Member::EndShowing(const MessageWriter& message, const MessageKey& key,
                        const PositionList& readers) {
  const uint64_t sequence = ++device_->sequence_;
  message.Publish(key, /*shows=*/true);
  device_->sent_[sequence % kSlots] = SentNow(readers, Reach::kElsewhere);
  Wake(*readers, Deed::kWritten);
}

void Member::Hide() const {
  device_->region().hidden.store(launch_->gang().place, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

absl::Status Member::CheckShown(uint32_t source) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Place& place = PlaceOf(source);
  if (place.region().hidden.load(std::memory_order_seq_cst) < launch_->gang().place)
    return absl::OkStatus();
  return AwaitGone(source);
}

absl::Status Member::AwaitGone(uint32_t source) {
  const Place& place = PlaceOf(source);
  return AwaitReason(place, absl::UnavailableError(
                                absl::StrCat(place.peer->name(), ", local device ", place.device,
                                             ", has left the gang in the middle of a collective")));
}

absl::Status Member::AwaitReadersElsewhere(const PositionList& readers) {
  const LocalDevice::Sent last = SentNow(readers, Reach::kElsewhere);
  for (uint32_t position : *readers) {
    const Place& reader = PlaceOf(position);
    if (IsHere(reader)) continue;
    GANGWAY_RETURN_IF_ERROR(Await(reader, ReadOf(last), [&] { return IsRead(reader, last); }));
  }
  return launch_->reason();
}

// To each worker once, what its readers need together.
absl::Status Member::SendByCourier(const MessageWriter& message, const MessageKey& key,
                                   const PositionList& readers, NeedOf need) {
  struct Needed {
    const Place* place = nullptr;  // one of its readers
    std::vector<ByteRange> ranges;
  };
  std::map<uint32_t, Needed> needed;  // by worker, so that the order is the same in every run
  for (size_t rank = 0; rank < readers->size(); ++rank) {
    const Place& place = (*launch_->places())[(*readers)[rank]];
    if (place.peer->courier() == nullptr) continue;
    Needed& of = needed[place.peer->index()];
    of.place = &place;
    need(rank, of.ranges);
  }
  for (auto& [worker, of] : needed) {
    const Peer* const peer = of.place->peer.get();
    const Published published{.device = device_->device_,
                              .sequence = device_->sequence_,
                              .key = key,
                              .ranges = Joined(std::move(of.ranges)),
                              .data = message.data()};
    const absl::Status sent = device_->reads_.Send(*peer, published);
    if (absl::IsUnavailable(sent)) return AwaitReason(*of.place, sent);
    GANGWAY_RETURN_IF_ERROR(sent);
  }
  return absl::OkStatus();
}

absl::StatusOr<Member::Found> Member::Receive(uint32_t source, const MessageKey& key) {
  const Place& place = (*launch_->places())[source];
  const Region& region = place.region();
  Found found;
  GANGWAY_RETURN_IF_ERROR(Await(place, {.key = key}, [&] {
    for (size_t slot = 0; slot < kSlots; ++slot) {
      const Region::Header& header = region.headers[slot];
      const uint64_t sequence = header.sequence.load(std::memory_order_acquire);
      if (sequence == 0 || !IsOf(header, key)) continue;
      const bool shows = header.shows.load(std::memory_order_relaxed) != 0;
      std::atomic_thread_fence(std::memory_order_acquire);
      if (header.sequence.load(std::memory_order_relaxed) != sequence) continue;
      found = {region.data[slot].data(), &header, sequence, shows};
      return true;
    }
    return false;
  }));
  return found;
}

absl::Status Member::CheckStays(uint32_t source, const Found& found) {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (found.header->sequence.load(std::memory_order_relaxed) == found.sequence)
    return absl::OkStatus();
  return AwaitGone(source);
}

absl::Status Member::OutOfOrder(uint32_t source) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "collective ", CollectiveName(), ": position ", source,
      " ran it before another one that position ", position_,
      " has run already; all positions must run a program's collectives in one order"));
}

absl::Status Member::Consume(uint32_t source, const Found& found) {
  GANGWAY_RETURN_IF_ERROR(CheckStays(source, found));
  const Place& place = PlaceOf(source);
  if (place.number() == device_->number_) return absl::OkStatus();
  std::atomic<uint64_t>& consumed = device_->region().consumed[place.number()];
  // A source has no more messages than slots, so one that was read too early is not far ahead. A larger distance is to
  // the number of an earlier process of the source.
  const uint64_t later = consumed.load(std::memory_order_relaxed) - found.sequence;
  if (later != 0 && later < kSlots) return OutOfOrder(source);
  consumed.store(found.sequence, std::memory_order_release);
  if (place.peer->courier() != nullptr)
    device_->reads_.Note(place.peer, place.device, found.sequence);
  return absl::OkStatus();
}

// A sender overwrites an unread message only if the launch has failed on its worker, and a broken way fails its
// launches. In both cases an abort with the root cause follows.
absl::Status Member::AwaitReason(const Place& place, const absl::Status& otherwise) {
  return Asleep(place, std::nullopt, [&] {
    Clock::time_point deadline = Clock::now() + launch_->wait_max();
    const FutexWord& pulse = place.region().pulse;
    bool was_gone = false;
    while (true) {
      const uint32_t seen = pulse.load(std::memory_order_seq_cst);
      if (launch_->is_aborted()) return launch_->reason();
      const Clock::time_point now = Clock::now();
      if (!was_gone && place.peer->is_gone()) {
        was_gone = true;
        deadline = std::min(deadline, now + kReasonMax);
      }
      if (now >= deadline) return otherwise;
      FutexWait(pulse, seen, kLookMax);
    }
  });
}

absl::Status Member::Run(int64_t number, std::span<const std::span<const std::byte>> operands,
                         std::span<const std::span<std::byte>> results) {
  if (number < 0 || static_cast<size_t>(number) >= rounds_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program calls collective ", number, " of ", rounds_.size()));
  }
  const PlannedCollective& planned = launch_->plan().at(number);
  const auto size_of = [](const auto& array) { return array.size(); };
  if (!std::ranges::equal(operands, planned.operand_bytes, {}, size_of) ||
      !std::ranges::equal(results, planned.result_bytes, {}, size_of)) {
    return absl::InvalidArgumentError(absl::StrCat("the operands of collective ", planned.Name(),
                                                   " are not those of its description"));
  }
  if (launch_->is_aborted()) return launch_->reason();
  number_ = static_cast<uint32_t>(number);
  const Clock::time_point began = Clock::now();
  absl::Status status = Exchange(*this, number_, rounds_[number]++, operands, results).Run();
  has_met_ |= status.ok();
  flight_.Add(number_, began, Clock::now());
  return status;
}

}  // namespace gangway::collective
