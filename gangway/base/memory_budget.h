// A limit of the memory that a process holds for its clients, shared by all that holds some. What exceeds it waits, or
// is refused by name with the sizes, so that no client's traffic ends the process. Only large things are charged, each
// for as long as its bytes are held.
//
// Thread-safe. Failure: RESOURCE_EXHAUSTED, with the sizes and what holds them.
#ifndef GANGWAY_BASE_MEMORY_BUDGET_H_
#define GANGWAY_BASE_MEMORY_BUDGET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"

namespace gangway {

class MemoryBudget {
 public:
  enum class Kind { kHostBuffers, kPrograms, kPieces };
  static constexpr size_t kKinds = 3;
  struct Use {
    uint64_t limit_bytes = 0;
    std::array<uint64_t, kKinds> bytes{};  // by kind
    uint64_t of(Kind kind) const { return bytes[static_cast<size_t>(kind)]; }
    uint64_t total() const;
  };

  // `holder` and `option` are for people: "the head", "--head-memory", or empty.
  MemoryBudget(std::string holder, std::string option, uint64_t bytes_max)
      : holder_(std::move(holder)), option_(std::move(option)), bytes_max_(bytes_max) {}

  // Waits for room until `deadline`; one that is past: not at all. What exceeds the limit alone is refused at once.
  absl::Status Acquire(Kind kind, uint64_t bytes, Clock::time_point deadline);
  absl::Status TryAcquire(Kind kind, uint64_t bytes) { return Acquire(kind, bytes, {}); }
  void Release(Kind kind, uint64_t bytes);

  Use use() const;
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  absl::Status Refused(uint64_t bytes) const GANGWAY_REQUIRES(mutex_);

  const std::string holder_;
  const std::string option_;
  const uint64_t bytes_max_;
  mutable Mutex mutex_;
  CondVar released_;
  std::array<uint64_t, kKinds> used_ GANGWAY_GUARDED_BY(mutex_){};
  uint64_t total_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_MEMORY_BUDGET_H_
