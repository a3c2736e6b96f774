// Threads for tasks that may block for long: each task begins at once, on an idle thread or a new one. The caller
// bounds how many run. A thread ends after a second without a task.
//
// Threading: thread-safe. Threads are detached and share ownership of what they use here; who needs to know that the
// tasks have ended counts them.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_SPARE_THREADS_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_SPARE_THREADS_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "gangway/base/detached_thread.h"
#include "gangway/base/mutex.h"

namespace gangway::worker {

class SpareThreads : public std::enable_shared_from_this<SpareThreads> {
 public:
  static constexpr std::chrono::milliseconds kIdleMax{1000};

  void Run(std::function<void()> task) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
    if (idle_ >= queue_.size()) return changed_.NotifyOne();
    RunDetached([self = shared_from_this()] { self->Serve(); });
  }

 private:
  void Serve() GANGWAY_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        ++idle_;
        changed_.WaitFor(mutex_, kIdleMax,
                         [this]() GANGWAY_NO_ANALYSIS { return !queue_.empty(); });
        --idle_;
        if (queue_.empty()) return;
        task = std::move(queue_.front());
        queue_.pop_front();
      }
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  size_t idle_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_SPARE_THREADS_H_
