// Implementation of device_thread.h.
#include "gangway/worker/service/device_thread.h"

#include <pthread.h>

#include <cstddef>
#include <utility>

namespace gangway::worker {

DeviceThread::DeviceThread(const std::string& name, int inflight_max)
    : name_(name),
      executes_(std::make_shared<InFlight>(inflight_max)),
      thread_([this] { Run(); }) {}

DeviceThread::~DeviceThread() {
  if (thread_.joinable()) thread_.join();
}

void DeviceThread::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

void DeviceThread::OpenGate() {
  {
    MutexLock lock(mutex_);
    gate_shut_ = false;
  }
  changed_.NotifyOne();
}

bool DeviceThread::Waits(const Task& task, bool first) const {
  if (!gate_shut_) return !first;
  switch (task.turn) {
    case Turn::kAny:
      return task.ready && !task.ready();
    case Turn::kGang:
      return !first;
    case Turn::kGangAlone:
      return true;
  }
  return true;
}

std::function<void()> DeviceThread::Take() {
  size_t next = 0;
  while (next < at_gate_.size() && Waits(at_gate_[next], next == 0)) ++next;
  while (next == at_gate_.size() && !queue_.empty()) {
    at_gate_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (Waits(at_gate_[next], next == 0)) ++next;
  }
  if (next == at_gate_.size()) return nullptr;
  Task task = std::move(at_gate_[next]);
  at_gate_.erase(at_gate_.begin() + static_cast<std::ptrdiff_t>(next));
  if (task.turn == Turn::kGangAlone) gate_shut_ = true;
  return std::move(task.run);
}

bool DeviceThread::Stop(InFlight::Clock::time_point deadline) {
  executes_->Abort();
  std::deque<Task> dropped, dropped_at_gate;
  MutexLock lock(mutex_);
  stopping_ = true;
  dropped.swap(queue_);
  dropped_at_gate.swap(at_gate_);
  changed_.NotifyAll();
  return changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return ended_; });
}

void DeviceThread::Run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      // Idle without a limit: a day is "until posted".
      changed_.WaitFor(mutex_, std::chrono::hours(24), [this, &task]() GANGWAY_NO_ANALYSIS {
        if (!stopping_) task = Take();
        return stopping_ || task != nullptr;
      });
      if (stopping_) break;
      if (task == nullptr) continue;
    }
    task();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace gangway::worker
