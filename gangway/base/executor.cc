// Implementation of executor.h.
#include "gangway/base/executor.h"

#include <algorithm>
#include <iterator>

#include "gangway/base/serving_thread.h"
#include "gangway/base/status.h"

namespace gangway {

EventLoop::EventLoop(const std::string& name) : thread_(name, [this] { Run(); }) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Post(std::function<void()> task) {
  if (Current() == this && polling_) return polled_.push_back(std::move(task));
  bool wake;
  Poller* poller;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
    wake = std::exchange(waiting_, false);
    poller = poller_.get();
  }
  if (wake) Wake(poller);
}

uint64_t EventLoop::PostAt(Clock::time_point when, std::function<void()> task) {
  uint64_t id;
  bool wake;
  Poller* poller;
  {
    MutexLock lock(mutex_);
    id = next_timer_++;
    timers_.emplace(std::make_pair(when, id), std::move(task));
    wake = std::exchange(waiting_, false);
    poller = poller_.get();
  }
  if (wake) Wake(poller);
  return id;
}

void EventLoop::Cancel(uint64_t timer) {
  MutexLock lock(mutex_);
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->first.second == timer) {
      timers_.erase(it);
      return;
    }
  }
}

void EventLoop::AddRoundEnd(std::function<void()> flush) {
  Post([this, flush = std::move(flush)] { round_ends_.push_back(flush); });
}

absl::StatusOr<std::shared_ptr<Poller>> EventLoop::poller() {
  std::shared_ptr<Poller> made;
  {
    MutexLock lock(mutex_);
    if (poller_ != nullptr) return poller_;
    GANGWAY_ASSIGN_OR_RETURN(poller_, Poller::Create());
    made = poller_;
    waiting_ = false;
  }
  wake_.NotifyOne();  // a loop that waits goes to wait in the poller
  return made;
}

void EventLoop::Wake(Poller* poller) {
  if (poller != nullptr) {
    poller->Wake();
  } else {
    wake_.NotifyOne();
  }
}

void EventLoop::Stop() {
  Poller* poller;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    poller = poller_.get();
  }
  Wake(poller);
  if (thread_.joinable()) thread_.Join();
}

bool EventLoop::DueLocked() const {
  return !queue_.empty() || !polled_.empty() || !at_round_end_.empty() || stopping_ ||
         (!timers_.empty() && timers_.begin()->first.first <= Clock::now());
}

// Returns when something may be due.
void EventLoop::Wait() {
  Clock::time_point deadline;
  Poller* poller;
  {
    MutexLock lock(mutex_);
    if (DueLocked()) return;
    poller = poller_.get();
    waiting_ = true;
    // Without timers only a post wakes the loop: a day stands for "no deadline".
    deadline =
        timers_.empty() ? Clock::now() + std::chrono::hours(24) : timers_.begin()->first.first;
    if (poller == nullptr) {
      wake_.WaitUntil(mutex_, deadline,
                      [this]() GANGWAY_NO_ANALYSIS { return !waiting_ || stopping_; });
      waiting_ = false;
      return;
    }
  }
  Poll(*poller, deadline);
  MutexLock lock(mutex_);
  waiting_ = false;
}

void EventLoop::Poll(Poller& poller, Clock::time_point deadline) {
  polling_ = true;
  poller.Poll(deadline);
  polling_ = false;
}

void EventLoop::Run() {
  Thread::Local() = this;
  BeginServing();
  std::vector<std::function<void()>> round, posted, once;
  while (true) {
    Wait();
    Poller* poller;
    {
      MutexLock lock(mutex_);
      if (!DueLocked()) continue;
      if (stopping_ && queue_.empty() && polled_.empty() && at_round_end_.empty()) return;
      posted.swap(queue_);
      auto now = Clock::now();
      while (!timers_.empty() && timers_.begin()->first.first <= now) {
        posted.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      poller = poller_.get();
    }
    // What is watched is looked at after these tasks were posted, and also if tasks never end.
    if (poller != nullptr && !posted.empty()) Poll(*poller, Clock::time_point::min());
    round.swap(polled_);
    std::move(posted.begin(), posted.end(), std::back_inserter(round));
    posted.clear();
    ++round_;
    for (auto& task : round) task();
    round.clear();
    for (auto& flush : round_ends_) flush();
    while (!at_round_end_.empty()) {
      once.swap(at_round_end_);
      for (auto& task : once) task();
      once.clear();
    }
  }
}

}  // namespace gangway
