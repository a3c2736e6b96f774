// Implementation of gang_queue.h.
#include "gangway/collective/execution/gang_queue.h"

#include <algorithm>
#include <utility>

namespace gangway::collective {
namespace {

// Of a larger gang, members are woken without a look at who sleeps: all of them leave it, so the looks would be
// quadratic in its devices, and one system call costs as much as some hundred of them.
constexpr size_t kLooksMax = 64;

}  // namespace

// Mostly the first one, or the place behind the last.
std::vector<GangQueue::Entered>::iterator GangQueue::Find(uint64_t order) {
  return std::lower_bound(gangs_.begin() + static_cast<ptrdiff_t>(first_), gangs_.end(), order,
                          [](const Entered& each, uint64_t at) { return each.order < at; });
}

void GangQueue::Enter(uint64_t order) {
  MutexLock lock(mutex_);
  const bool was_idle = first_ == gangs_.size();
  const auto at = Find(order);
  if (at == gangs_.end() || at->order != order) gangs_.insert(at, {order, nullptr});
  last_gang_ = std::max(last_gang_, order);
  // Gangs between the last one here and this one are not of this device, or never came.
  if (was_idle) SetLeft(order - 1);
}

void GangQueue::SetMembers(uint64_t order, std::shared_ptr<const PeerDevices> members) {
  MutexLock lock(mutex_);
  const auto at = Find(order);
  if (at != gangs_.end() && at->order == order) at->members = std::move(members);
}

std::shared_ptr<const PeerDevices> GangQueue::Take(uint64_t order) {
  const auto at = Find(order);
  if (at == gangs_.end() || at->order != order) return nullptr;
  std::shared_ptr<const PeerDevices> members = std::move(at->members);
  if (at != gangs_.begin() + static_cast<ptrdiff_t>(first_)) {
    left_early_ = true;
    gangs_.erase(at);
  } else if (++first_ == gangs_.size()) {
    gangs_.clear();
    first_ = 0;
  } else if (first_ > gangs_.size() / 2) {
    gangs_.erase(gangs_.begin(), gangs_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
  }
  return members;
}

std::optional<LeftUpTo> GangQueue::Leave(uint64_t order, Ending ending) {
  std::shared_ptr<const PeerDevices> members;  // dropped without the lock
  MutexLock lock(mutex_);
  members = Take(order);
  LeftUpTo left{.device = number_ % kDevicesMax};
  bool is_news = ending != Ending::kComplete;
  if (is_news) to_tell_ = std::max(to_tell_, order);
  if (ending == Ending::kEarly) SetFailed(order);
  left.order = first_ == gangs_.size() ? last_gang_ : gangs_[first_].order - 1;
  if (SetLeft(left.order)) WakeSenders(left_early_ ? nullptr : members.get());
  if (first_ == gangs_.size()) left_early_ = false;
  left.failed = region_.failed.load(std::memory_order_relaxed);
  // Of its own launch's members here, which has been aborted: one that was about to sleep may have missed that.
  if (ending == Ending::kEarly) FutexWake(region_.pulse);
  if (to_tell_ != 0 && left.order >= to_tell_) {
    is_news = true;
    to_tell_ = 0;
  }
  return is_news ? std::optional(left) : std::nullopt;
}

LeftUpTo GangQueue::FailLate(uint64_t order) {
  MutexLock lock(mutex_);
  SetFailed(order);
  return {.device = number_ % kDevicesMax,
          .order = region_.left.load(std::memory_order_relaxed),
          .failed = region_.failed.load(std::memory_order_relaxed)};
}

void GangQueue::SetFailed(uint64_t order) {
  if (order > region_.failed.load(std::memory_order_relaxed)) region_.failed = order;
}

bool GangQueue::SetLeft(uint64_t order) {
  if (region_.left.load(std::memory_order_relaxed) == order) return false;
  region_.left.store(order, std::memory_order_seq_cst);
  region_.pulse.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

// Who sleeps says so before it looks at the pulse for the last time, so it has seen the new one, or is seen here.
void GangQueue::WakeSenders(const PeerDevices* members) {
  const uint32_t sleeps = SleepsFor(number_, Deed::kRead);
  const bool any = members == nullptr || members->regions_of_host().size() > kLooksMax ||
                   std::ranges::any_of(members->regions_of_host(), [&](const Region* region) {
                     return region->awaited.load(std::memory_order_seq_cst) == sleeps;
                   });
  if (any) FutexWake(region_.pulse, static_cast<FutexBits>(Deed::kRead));
}

}  // namespace gangway::collective
