// Implementation of device_pool.h.
#include "gangway/worker/service/device/device_pool.h"

#include <algorithm>
#include <utility>

namespace gangway::worker {
namespace {

constexpr std::chrono::hours kNoLimit{24};  // the wait is then repeated

}  // namespace

DevicePool::DevicePool(size_t width)
    : width_(width), allowed_(width), watch_("device-watch", [this] { Watch(); }) {}

DevicePool::~DevicePool() {
  std::vector<Thread> threads;
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    dropped.swap(queue_);
    watching_ = true;
    work_.NotifyAll();
    full_.NotifyAll();
    stopped_.NotifyAll();
  }
  watch_.Join();
  for (Thread& thread : threads) thread.Join();
}

void DevicePool::Run(std::function<void()> task) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  queue_.push_back(std::move(task));
  if (IsFull()) return WatchForStall();
  if (queue_.size() <= idle_) return work_.NotifyOne();
  if (threads_.size() < allowed_) threads_.emplace_back("devices", [this] { Serve(); });
}

void DevicePool::WatchForStall() {
  if (!queue_.empty() && IsFull() && !std::exchange(watching_, true)) full_.NotifyOne();
}

void DevicePool::Serve() {
  std::function<void()> task;
  while (true) {
    {
      MutexLock lock(mutex_);
      ++idle_;
      const auto ready = [this]() GANGWAY_NO_ANALYSIS {
        return stopping_ || (!queue_.empty() && !IsFull());
      };
      while (!work_.WaitFor(mutex_, kNoLimit, ready)) continue;
      --idle_;
      if (stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      ++taken_;
      ++running_;
      WatchForStall();
    }
    task();
    task = nullptr;
    MutexLock lock(mutex_);
    --running_;
    if (queue_.empty()) allowed_ = std::max(width_, running_);
  }
}

// Sleeps while a thread is free for the next task.
void DevicePool::Watch() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty() || !IsFull()) {
      watching_ = false;
      full_.WaitFor(mutex_, kNoLimit, [this]() GANGWAY_NO_ANALYSIS { return watching_; });
      continue;
    }
    const uint64_t taken = taken_;
    stopped_.WaitFor(mutex_, kStalledAfter, [this]() GANGWAY_NO_ANALYSIS { return stopping_; });
    if (taken == taken_ && !stopping_) RunAllThatWait();
  }
}

void DevicePool::RunAllThatWait() {
  allowed_ = running_ + queue_.size();
  for (size_t more = queue_.size(); more > 0; --more) {
    if (more > idle_) {
      threads_.emplace_back("devices", [this] { Serve(); });
    } else {
      work_.NotifyOne();
    }
  }
}

}  // namespace gangway::worker
