// Implementation of gang_queue.h.
#include "gangway/collective/execution/gang_queue.h"

#include <algorithm>

namespace gangway::collective {

void GangQueue::Enter(uint64_t order) {
  MutexLock lock(mutex_);
  const bool was_idle = gangs_.empty();
  gangs_.insert(order);
  last_gang_ = std::max(last_gang_, order);
  if (!was_idle) return;
  // Gangs between the last one here and this one are not of this device, or never came.
  SetLeft(order - 1);
}

std::optional<LeftUpTo> GangQueue::Leave(uint64_t order, Ending ending) {
  MutexLock lock(mutex_);
  LeftUpTo left{.device = device_};
  bool is_news = ending != Ending::kComplete;
  gangs_.erase(order);
  if (is_news) to_tell_ = std::max(to_tell_, order);
  if (ending == Ending::kEarly) SetFailed(order);
  left.order = gangs_.empty() ? last_gang_ : *gangs_.begin() - 1;
  SetLeft(left.order);
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
  return {.device = device_,
          .order = region_.left.load(std::memory_order_relaxed),
          .failed = region_.failed.load(std::memory_order_relaxed)};
}

void GangQueue::SetFailed(uint64_t order) {
  if (order > region_.failed.load(std::memory_order_relaxed)) region_.failed = order;
}

void GangQueue::SetLeft(uint64_t order) {
  if (region_.left.load(std::memory_order_relaxed) == order) return;
  region_.left.store(order, std::memory_order_seq_cst);
  region_.pulse.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(region_.pulse, static_cast<FutexBits>(Deed::kRead));
}

}  // namespace gangway::collective
