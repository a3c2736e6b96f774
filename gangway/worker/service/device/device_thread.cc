// Implementation of device_thread.h.
#include "gangway/worker/service/device/device_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::worker {

DeviceThread::DeviceThread(const std::string& name, int inflight_max,
                           std::chrono::milliseconds gate_wait_max, DevicePool* pool)
    : gate_wait_max_(gate_wait_max),
      pool_(pool),
      executes_(std::make_shared<InFlight>(inflight_max)),
      ended_(pool != nullptr) {
  if (pool == nullptr) thread_ = Thread(name, [this] { Run(); });
}

DeviceThread::~DeviceThread() {
  if (thread_.joinable()) thread_.Join();
}

void DeviceThread::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
  }
  Wake();
}

void DeviceThread::Wake() {
  if (pool_ == nullptr) return changed_.NotifyOne();
  {
    MutexLock lock(mutex_);
    if (!std::exchange(ended_, false)) return;  // its turn goes on
  }
  pool_->Run([this] { TakeTurn(); });
}

void DeviceThread::Leave() {
  {
    MutexLock lock(mutex_);
    --inside_;
    gate_moved_ = Clock::now();
  }
  Recheck();
}

void DeviceThread::Recheck() {
  {
    MutexLock lock(mutex_);
    if (at_gate_.empty()) return;
  }
  Wake();
}

size_t DeviceThread::backlog() const {
  MutexLock lock(mutex_);
  return queue_.size() + at_gate_.size() + static_cast<size_t>(executes_->count());
}

bool DeviceThread::Borrow() {
  MutexLock lock(mutex_);
  const bool is_idle = user_ == User::kNone && queue_.empty() && at_gate_.empty() && inside_ == 0 &&
                       executes_->count() == 0;
  if (stopping_ || !is_idle) return false;
  user_ = User::kBorrower;
  return true;
}

void DeviceThread::GiveBack() {
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    user_ = User::kNone;
    stopping = stopping_;
    if (queue_.empty() && !stopping) return;
  }
  if (stopping) return changed_.NotifyAll();
  Wake();
}

bool DeviceThread::MayEnter(const Task& task) const {
  return inside_ == 0 || task.follows == last_entered_;
}

bool DeviceThread::Waits(const Task& task, bool first) const {
  if (inside_ == 0) return !first;
  if (first && Clock::now() >= WaitsUntil()) return false;
  switch (task.turn) {
    case Turn::kAny:
      return task.ready && !task.ready();
    case Turn::kGang:
      return !first;
    case Turn::kGangAlone:
      return !first || !MayEnter(task);
  }
  return true;
}

DeviceThread::Work DeviceThread::Take() {
  if (user_ == User::kThread) user_ = User::kNone;  // its last task has ended
  if (user_ == User::kBorrower) return nullptr;
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
  user_ = User::kThread;
  return Enter(std::move(task));
}

DeviceThread::Work DeviceThread::Enter(Task task) {
  absl::Status entry;
  if (task.turn == Turn::kGangAlone) {
    if (MayEnter(task)) {
      ++inside_;
      last_entered_ = task.gang;
      gate_moved_ = Clock::now();
    } else {
      entry = absl::DeadlineExceededError(absl::StrCat(
          "Gang ", last_entered_, " has not ended on this device for ",
          std::chrono::ceil<std::chrono::seconds>(gate_wait_max_).count(),
          " s. Programs with collectives that do not read its results wait for its end."));
    }
  }
  return [run = std::move(task.run), entry = std::move(entry)] { run(entry); };
}

Clock::time_point DeviceThread::WaitsUntil() const {
  return at_gate_.empty() ? Clock::now() + std::chrono::hours(24) : gate_moved_ + gate_wait_max_;
}

bool DeviceThread::Stop(Clock::time_point deadline) {
  executes_->Abort();
  std::deque<Task> dropped, dropped_at_gate;
  MutexLock lock(mutex_);
  stopping_ = true;
  dropped.swap(queue_);
  dropped_at_gate.swap(at_gate_);
  changed_.NotifyAll();
  return changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS {
    return ended_ && user_ != User::kBorrower;
  });
}

void DeviceThread::TakeTurn() {
  while (true) {
    Work work;
    {
      MutexLock lock(mutex_);
      if (!stopping_) work = Take();
      if (work == nullptr) {
        ended_ = true;
        changed_.NotifyAll();
        return;
      }
    }
    work();
  }
}

void DeviceThread::Run() {
  while (true) {
    Work work;
    {
      MutexLock lock(mutex_);
      const Clock::time_point until = WaitsUntil();
      changed_.WaitUntil(mutex_, until, [this, until, &work]() GANGWAY_NO_ANALYSIS {
        if (!stopping_) work = Take();
        return stopping_ || work != nullptr || WaitsUntil() < until;
      });
      if (stopping_) break;
      if (work == nullptr) continue;
    }
    work();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace gangway::worker
