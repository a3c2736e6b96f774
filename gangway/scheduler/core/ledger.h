// Bytes charged per device of one island, with the peak. Upholds GS-2: the scheduler asks before it
// admits. Pure accounting; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_LEDGER_H_
#define GANGWAY_SCHEDULER_CORE_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gangway/base/check.h"

namespace gangway::scheduler {

class Ledger {
 public:
  // `budget_bytes` per device; 0 = no limit.
  Ledger(size_t device_count, uint64_t budget_bytes)
      : budget_bytes_(budget_bytes), used_(device_count, 0), peak_(device_count, 0) {}

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes(uint32_t device) const { return used_[device]; }
  uint64_t peak_bytes(uint32_t device) const { return peak_[device]; }

  bool Fits(uint32_t device, uint64_t bytes) const {
    return budget_bytes_ == 0 || used_[device] + bytes <= budget_bytes_;
  }
  void Charge(uint32_t device, uint64_t bytes) {
    used_[device] += bytes;
    peak_[device] = std::max(peak_[device], used_[device]);
  }
  void Credit(uint32_t device, uint64_t bytes) {
    GANGWAY_CHECK(used_[device] >= bytes, "more memory credited than charged");
    used_[device] -= bytes;
  }

 private:
  const uint64_t budget_bytes_;
  std::vector<uint64_t> used_;
  std::vector<uint64_t> peak_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LEDGER_H_
