// Implementation of memory_budget.h.
#include "gangway/base/memory_budget.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace gangway {
namespace {

constexpr const char* kNames[MemoryBudget::kKinds] = {"uploads and downloads", "programs",
                                                      "programs that arrive"};

}  // namespace

uint64_t MemoryBudget::Use::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

absl::Status MemoryBudget::Refused(uint64_t bytes) const {
  std::string held;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (used_[kind] != 0)
      absl::StrAppend(&held, held.empty() ? ": " : ", ", used_[kind], " of ", kNames[kind]);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      bytes, " bytes do not fit: ", holder_, " holds ", total_, " bytes for its clients", held,
      "; its limit is ", bytes_max_, option_.empty() ? "" : absl::StrCat(" (", option_, ")"),
      ". Send less at once, or try again later"));
}

absl::Status MemoryBudget::Acquire(Kind kind, uint64_t bytes, Clock::time_point deadline) {
  MutexLock lock(mutex_);
  const auto fits = [&]() GANGWAY_NO_ANALYSIS { return total_ <= bytes_max_ - bytes; };
  if (bytes > bytes_max_ || !(fits() || released_.WaitUntil(mutex_, deadline, fits)))
    return Refused(bytes);
  used_[static_cast<size_t>(kind)] += bytes;
  total_ += bytes;
  return absl::OkStatus();
}

void MemoryBudget::Release(Kind kind, uint64_t bytes) {
  MutexLock lock(mutex_);
  used_[static_cast<size_t>(kind)] -= bytes;
  total_ -= bytes;
  released_.NotifyAll();
}

MemoryBudget::Use MemoryBudget::use() const {
  MutexLock lock(mutex_);
  return {.limit_bytes = bytes_max_, .bytes = used_};
}

}  // namespace gangway
