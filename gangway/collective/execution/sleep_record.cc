// Implementation of sleep_record.h.
#include "gangway/collective/execution/sleep_record.h"

#include <algorithm>
#include <utility>

namespace gangway::collective {
namespace {

// Only the member's own thread writes what this reads, apart from `left`, which is final for an earlier gang.
bool HasDone(const Region& own, const WaitQuestion::Owed& owed) {
  const MessageKey& key = owed.deed.key;
  if (owed.deed.deed == Deed::kRead) {
    return own.left.load(std::memory_order_acquire) >= key.gang ||
           IsReadUpTo(own.consumed[owed.by].load(std::memory_order_acquire), owed.deed.sequence);
  }
  return std::ranges::any_of(own.headers, [&](const Region::Header& header) {
    return header.sequence.load(std::memory_order_acquire) != 0 && IsOf(header, key);
  });
}

}  // namespace

bool IsOf(const Region::Header& header, const MessageKey& key) {
  return header.gang.load(std::memory_order_relaxed) == key.gang &&
         header.number.load(std::memory_order_relaxed) == key.number &&
         header.round.load(std::memory_order_relaxed) == key.round &&
         header.part.load(std::memory_order_relaxed) == key.part;
}

void SleepRecord::Begin(Sleep sleep) {
  std::function<void()> dropped;
  MutexLock lock(mutex_);
  is_asked_.store(false, std::memory_order_seq_cst);
  sleep_ = std::move(sleep);
  since_ = Clock::now();
  ++waits_;
  dropped.swap(held_);
}

void SleepRecord::End() {
  std::optional<Sleep> ended;
  std::function<void()> dropped;
  MutexLock lock(mutex_);
  ended.swap(sleep_);
  dropped.swap(held_);
}

std::optional<Waiting> SleepRecord::waiting() const {
  MutexLock lock(mutex_);
  if (!sleep_) return std::nullopt;
  const Peer& peer = *sleep_->device.peer;
  return Waiting{.gang = sleep_->launch->gang().ordinal,
                 .wait = waits_,
                 .number = sleep_->number,
                 .round = sleep_->round,
                 .collective = sleep_->launch->plan().at(sleep_->number).Name(),
                 .peer = peer.name(),
                 .peer_worker = peer.index(),
                 .peer_device = sleep_->device.device,
                 .is_mirrored = !sleep_->device.shares_memory(),
                 .awaited = sleep_->awaited,
                 .since = since_};
}

void SleepRecord::Ask(const WaitQuestion& question, std::function<void()> held) {
  PeerDevice device;
  {
    MutexLock lock(mutex_);
    if (!sleep_ || waits_ != question.wait) return;
    question_ = question;
    held_.swap(held);  // an earlier one ends without the lock
    is_asked_.store(true, std::memory_order_seq_cst);
    device = sleep_->device;
  }
  FutexWake(device.region().pulse);  // if it is about to sleep, it looks again soon
}

void SleepRecord::Answer(const Region& own) {
  WaitQuestion question;
  std::function<void()> held;
  {
    MutexLock lock(mutex_);
    is_asked_.store(false, std::memory_order_seq_cst);
    question = question_;
    held.swap(held_);
  }
  if (held != nullptr && !(question.owed && HasDone(own, *question.owed))) held();
}

}  // namespace gangway::collective
