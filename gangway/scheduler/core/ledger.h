// Bytes charged per device of one island, with the peak. Upholds GS-2: the scheduler asks before it
// admits. Pure accounting; not thread-safe. No sum wraps: what is charged at a time stays below twice
// kSizeMax, because only what Fits is charged, and what donation saved, which was charged before.
#ifndef GANGWAY_SCHEDULER_CORE_LEDGER_H_
#define GANGWAY_SCHEDULER_CORE_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gangway/base/check.h"
#include "gangway/base/ids.h"
#include "gangway/base/sizes.h"

namespace gangway::scheduler {

class Ledger {
 public:
  // `budget_bytes` per device; 0 = no limit.
  Ledger(size_t device_count, uint64_t budget_bytes)
      : budget_bytes_(budget_bytes), used_(device_count, 0), peak_(device_count, 0) {}

  uint64_t budget_bytes() const { return budget_bytes_; }
  // What one device can hold at most.
  uint64_t limit_bytes() const { return budget_bytes_ == 0 ? kSizeMax : budget_bytes_; }
  uint64_t used_bytes(IslandDevice device) const { return used_[device.number()]; }
  uint64_t peak_bytes(IslandDevice device) const { return peak_[device.number()]; }

  uint64_t free_bytes(IslandDevice device) const {
    const uint64_t used = used_[device.number()];
    return used <= limit_bytes() ? limit_bytes() - used : 0;
  }
  bool Fits(IslandDevice device, uint64_t bytes) const { return bytes <= free_bytes(device); }
  void Charge(IslandDevice device, uint64_t bytes) {
    used_[device.number()] += bytes;
    peak_[device.number()] = std::max(peak_[device.number()], used_[device.number()]);
  }
  void Credit(IslandDevice device, uint64_t bytes) {
    GANGWAY_CHECK(used_[device.number()] >= bytes, "more memory credited than charged");
    used_[device.number()] -= bytes;
  }

 private:
  const uint64_t budget_bytes_;
  std::vector<uint64_t> used_;
  std::vector<uint64_t> peak_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LEDGER_H_
