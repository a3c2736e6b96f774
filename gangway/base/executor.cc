// Implementation of executor.h.
#include "gangway/base/executor.h"

#include <pthread.h>

namespace gangway {
namespace {

thread_local EventLoop* current_loop = nullptr;

}  // namespace

EventLoop* EventLoop::Current() { return current_loop; }

EventLoop::EventLoop(std::string name) : name_(std::move(name)), thread_([this] { Run(); }) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Post(std::function<void()> task) {
  bool wake;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
    wake = waiting_;
    waiting_ = false;
  }
  if (wake) wake_.NotifyOne();
}

uint64_t EventLoop::PostAt(Clock::time_point when, std::function<void()> task) {
  bool wake;
  uint64_t id;
  {
    MutexLock lock(mutex_);
    id = next_timer_++;
    timers_.emplace(std::make_pair(when, id), std::move(task));
    wake = waiting_;
    waiting_ = false;
  }
  if (wake) wake_.NotifyOne();
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

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  current_loop = this;
  std::vector<std::function<void()>> round, once;
  while (true) {
    {
      MutexLock lock(mutex_);
      auto due = [this]() GANGWAY_NO_ANALYSIS {
        return !queue_.empty() || stopping_ ||
               (!timers_.empty() && timers_.begin()->first.first <= Clock::now());
      };
      while (!due()) {
        waiting_ = true;
        // Without timers only a post wakes the loop: a day stands for "no deadline".
        auto deadline =
            timers_.empty() ? Clock::now() + std::chrono::hours(24) : timers_.begin()->first.first;
        wake_.WaitUntil(mutex_, deadline,
                        [this]() GANGWAY_NO_ANALYSIS { return !waiting_ || stopping_; });
        waiting_ = false;
      }
      if (queue_.empty() && stopping_) return;
      round.swap(queue_);
      auto now = Clock::now();
      while (!timers_.empty() && timers_.begin()->first.first <= now) {
        round.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
    }
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
