// Answer: one value that one thread gives and another waits for, with a deadline. Shared by the two, since either may
// leave first.
#ifndef GANGWAY_BASE_ANSWER_H_
#define GANGWAY_BASE_ANSWER_H_

#include <chrono>
#include <optional>
#include <utility>

#include "gangway/base/mutex.h"

namespace gangway {

template <typename T>
class Answer {
 public:
  // The first value counts.
  void Set(T value) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!value_) value_ = std::move(value);
    given_.NotifyAll();
  }

  // Null: none within `limit`.
  std::optional<T> WaitFor(std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    given_.WaitFor(mutex_, limit, [this]() GANGWAY_NO_ANALYSIS { return value_.has_value(); });
    return value_;
  }

 private:
  Mutex mutex_;
  CondVar given_;
  std::optional<T> value_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway

#endif  // GANGWAY_BASE_ANSWER_H_
