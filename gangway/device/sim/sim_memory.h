// The bytes that the buffers of each simulated device take. Internal to device/sim. Thread-safe.
#ifndef GANGWAY_DEVICE_SIM_SIM_MEMORY_H_
#define GANGWAY_DEVICE_SIM_SIM_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gangway/base/mutex.h"

namespace gangway::device {

class SimMemory : public std::enable_shared_from_this<SimMemory> {
 public:
  // Called with the total of a device after each change, under a lock.
  using OnUse = std::function<void(int device, int64_t bytes)>;

  // Bytes on a device, until it is dropped.
  class Lease {
   public:
    Lease(std::shared_ptr<SimMemory> memory, int device, int64_t bytes)
        : memory_(std::move(memory)), device_(device), bytes_(bytes) {
      memory_->Add(device_, bytes_);
    }
    ~Lease() { memory_->Add(device_, -bytes_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    // As many bytes on another device.
    std::shared_ptr<Lease> On(int device) const {
      return std::make_shared<Lease>(memory_, device, bytes_);
    }

   private:
    const std::shared_ptr<SimMemory> memory_;
    const int device_;
    const int64_t bytes_;
  };

  SimMemory(int device_count, OnUse on_use)
      : on_use_(std::move(on_use)), bytes_(static_cast<size_t>(device_count)) {}

  std::shared_ptr<Lease> Take(int device, size_t bytes) {
    return std::make_shared<Lease>(shared_from_this(), device, static_cast<int64_t>(bytes));
  }

 private:
  void Add(int device, int64_t bytes) {
    MutexLock lock(mutex_);
    int64_t& total = bytes_[static_cast<size_t>(device)];
    total += bytes;
    if (on_use_) on_use_(device, total);
  }

  const OnUse on_use_;
  Mutex mutex_;
  std::vector<int64_t> bytes_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_MEMORY_H_
