// Implementation of device_thread.h.
#include "gangway/worker/service/device_thread.h"

#include <pthread.h>

#include <utility>

namespace gangway::worker {

DeviceThread::DeviceThread(const std::string& name, int inflight_max)
    : name_(name),
      executes_(std::make_shared<InFlight>(inflight_max)),
      thread_([this] { Run(); }) {}

DeviceThread::~DeviceThread() {
  if (thread_.joinable()) thread_.join();
}

void DeviceThread::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

bool DeviceThread::Stop(InFlight::Clock::time_point deadline) {
  executes_->Abort();
  std::deque<std::function<void()>> dropped;
  MutexLock lock(mutex_);
  stopping_ = true;
  dropped.swap(queue_);
  changed_.NotifyAll();
  return changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return ended_; });
}

void DeviceThread::Run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      // Idle waiting has no limit; a wake-up once a day does no harm.
      changed_.WaitFor(mutex_, std::chrono::hours(24),
                       [this]() GANGWAY_NO_ANALYSIS { return stopping_ || !queue_.empty(); });
      if (stopping_) break;
      if (queue_.empty()) continue;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace gangway::worker
