// The contents of a simulated buffer: empty until settled once, with bytes or an error.
// Thread-safe; callbacks run without its lock, in the settling thread or at once.
#ifndef GANGWAY_DEVICE_SIM_SIM_STORAGE_H_
#define GANGWAY_DEVICE_SIM_SIM_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/device/sim/sim_memory.h"

namespace gangway::device {

class SimStorage {
 public:
  using Contents = std::shared_ptr<const std::vector<std::byte>>;
  // `at_us` is the device time at which the contents settled: the end of the run, which the timer
  // may report late.
  using Callback = std::function<void(const absl::Status&, const Contents&, int64_t at_us)>;

  SimStorage() = default;
  explicit SimStorage(std::shared_ptr<SimMemory::Lease> lease) : lease_(std::move(lease)) {}

  // The memory that it takes; TakeLease hands it to what reuses the memory.
  std::shared_ptr<SimMemory::Lease> lease() {
    MutexLock lock(mutex_);
    return lease_;
  }
  std::shared_ptr<SimMemory::Lease> TakeLease() {
    MutexLock lock(mutex_);
    return std::exchange(lease_, nullptr);
  }
  void Hold(std::shared_ptr<SimMemory::Lease> lease) {
    MutexLock lock(mutex_);
    lease_ = std::move(lease);
  }

  // Returns false, without effect, if the contents are already settled. Takes copies, because a
  // callback may drop the caller's references. NOLINTNEXTLINE(performance-unnecessary-value-param)
  bool Settle(absl::Status status, Contents contents, int64_t at_us) {
    std::vector<Callback> callbacks;
    {
      MutexLock lock(mutex_);
      if (settled_) return false;
      settled_ = true;
      status_ = status;
      contents_ = contents;
      at_us_ = at_us;
      callbacks.swap(callbacks_);
    }
    for (Callback& callback : callbacks) callback(status, contents, at_us);
    return true;
  }

  void OnSettled(Callback callback) {
    absl::Status status;
    Contents contents;
    int64_t at_us = 0;
    {
      MutexLock lock(mutex_);
      if (!settled_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
      status = status_;
      contents = contents_;
      at_us = at_us_;
    }
    callback(status, contents, at_us);
  }

 private:
  Mutex mutex_;
  std::shared_ptr<SimMemory::Lease> lease_ GANGWAY_GUARDED_BY(mutex_);
  bool settled_ GANGWAY_GUARDED_BY(mutex_) = false;
  absl::Status status_ GANGWAY_GUARDED_BY(mutex_);
  Contents contents_ GANGWAY_GUARDED_BY(mutex_);
  int64_t at_us_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::vector<Callback> callbacks_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_STORAGE_H_
