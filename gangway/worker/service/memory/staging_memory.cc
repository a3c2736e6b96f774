// Implementation of staging_memory.h.
#include "gangway/worker/service/memory/staging_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gangway::worker {

bool StagingMemory::Fits(SessionId session, uint64_t bytes) const {
  auto entry = sessions_.find(session);
  const uint64_t own = entry == sessions_.end() ? 0 : entry->second.used;
  return bytes <= session_bytes_max() && own <= session_bytes_max() - bytes &&
         used_ <= options_.bytes_max - bytes;
}

StagingMemory::Charge StagingMemory::ChargeTo(SessionId session, uint64_t bytes) {
  used_ += bytes;
  sessions_[session].used += bytes;
  return {shared_from_this(), session, bytes};
}

absl::Status StagingMemory::TooMuch(SessionId session, uint64_t bytes) const {
  auto entry = sessions_.find(session);
  return absl::ResourceExhaustedError(absl::StrCat(
      "this worker has no host memory for ", bytes,
      " bytes on their way: arrays on their way hold ", used_, " of ", options_.bytes_max,
      " bytes, those of this session ", entry == sessions_.end() ? 0 : entry->second.used, " of ",
      session_bytes_max(), "; move less at once, in smaller shards, or raise --staging"));
}

absl::StatusOr<StagingMemory::Charge> StagingMemory::Take(SessionId session, uint64_t bytes,
                                                          Order order) {
  MutexLock lock(mutex_);
  auto entry = sessions_.find(session);
  const bool waits =
      order == Order::kInTurn && entry != sessions_.end() && !entry->second.waits.empty();
  if (!waits && Fits(session, bytes)) return ChargeTo(session, bytes);
  return TooMuch(session, bytes);
}

void StagingMemory::Await(SessionId session, uint64_t bytes, Taken taken) {
  absl::StatusOr<Charge> now = Take(session, bytes, Order::kInTurn);
  if (now.ok() || bytes > session_bytes_max()) return taken(std::move(now));
  MutexLock lock(mutex_);
  if (closed_) return;
  Session& waiter = sessions_[session];
  if (waiter.waits.empty()) turns_.push_back(session);
  waiter.waits.push_back({bytes, Clock::now(), std::move(taken)});
  Grant();  // what was returned since Take
  WatchWaits();
}

void StagingMemory::Return(SessionId session, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  used_ -= bytes;
  Session& returning = sessions_.at(session);
  returning.used -= bytes;
  if (!returning.waits.empty()) returning.moved = Clock::now();
  Tidy(session);
  Grant();
}

void StagingMemory::Tidy(SessionId session) {
  auto entry = sessions_.find(session);
  if (entry != sessions_.end() && entry->second.used == 0 && entry->second.waits.empty())
    sessions_.erase(entry);
}

// Each session's oldest wait, in turns. One that does not fit is overtaken: a large shard delays no small one.
void StagingMemory::Grant() {
  for (size_t looked = 0; looked < turns_.size();) {
    const SessionId session = turns_.front();
    Session& waiter = sessions_.at(session);
    const uint64_t bytes = waiter.waits.front().bytes;
    turns_.pop_front();
    if (!Fits(session, bytes)) {
      turns_.push_back(session);
      ++looked;
      continue;
    }
    looked = 0;
    Taken taken = std::move(waiter.waits.front().taken);
    waiter.waits.pop_front();
    waiter.moved = Clock::now();
    if (!waiter.waits.empty()) turns_.push_back(session);
    Tell(std::move(taken), ChargeTo(session, bytes));
  }
}

void StagingMemory::Tell(Taken taken, absl::StatusOr<Charge> outcome) {
  if (closed_) return;
  auto shared = std::make_shared<absl::StatusOr<Charge>>(std::move(outcome));
  options_.loop->Post([taken = std::move(taken), shared] { taken(std::move(*shared)); });
}

void StagingMemory::WatchWaits() {
  if (closed_ || turns_.empty() || std::exchange(watching_, true)) return;
  Clock::time_point first = Clock::time_point::max();
  for (SessionId session : turns_) first = std::min(first, Deadline(sessions_.at(session)));
  options_.loop->PostAt(first, [self = shared_from_this()] { self->Expire(); });
}

void StagingMemory::Expire() {
  MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  watching_ = false;
  for (SessionId session : std::exchange(turns_, {})) {
    Session& waiter = sessions_.at(session);
    while (!waiter.waits.empty() && Deadline(waiter) <= now) {
      Tell(std::move(waiter.waits.front().taken), TooMuch(session, waiter.waits.front().bytes));
      waiter.waits.pop_front();
    }
    if (!waiter.waits.empty()) turns_.push_back(session);
    Tidy(session);
  }
  Grant();
  WatchWaits();
}

void StagingMemory::EndSession(SessionId session) {
  MutexLock lock(mutex_);
  auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return;
  for (Wait& wait : std::exchange(entry->second.waits, {}))
    Tell(std::move(wait.taken), absl::CancelledError("The session ended."));
  std::erase(turns_, session);
  Tidy(session);
  Grant();
}

void StagingMemory::Close() {
  std::vector<Taken> dropped;  // their destructors may return charges
  MutexLock lock(mutex_);
  closed_ = true;
  for (auto& [id, session] : sessions_) {
    for (Wait& wait : std::exchange(session.waits, {})) dropped.push_back(std::move(wait.taken));
  }
  turns_.clear();
}

uint64_t StagingMemory::used() const {
  MutexLock lock(mutex_);
  return used_;
}

size_t StagingMemory::waiting() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.waits.size();
  return count;
}

}  // namespace gangway::worker
