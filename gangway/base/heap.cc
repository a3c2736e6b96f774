// Implementation of heap.h. tcmalloc's C interface is declared weak here: only the command links the library.
#include "gangway/base/heap.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

extern "C" {
int MallocExtension_GetNumericProperty(const char* property, size_t* value) __attribute__((weak));
int MallocExtension_SetNumericProperty(const char* property, size_t value) __attribute__((weak));
void MallocExtension_ReleaseToSystem(size_t bytes) __attribute__((weak));
int tc_set_new_mode(int flag) __attribute__((weak));
}

namespace gangway {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kStepMiB = 256;  // by which the limit gives way to live bytes

std::atomic<uint64_t> configured_mib{0};  // 0: no limit
std::atomic<uint64_t> current_mib{0};

uint64_t Property(const char* name) {
  size_t value = 0;
  return MallocExtension_GetNumericProperty(name, &value) != 0 ? value : 0;
}

void SetLimit(uint64_t mib) {
  current_mib = mib;
  MallocExtension_SetNumericProperty("tcmalloc.heap_limit_mb", mib);
}

uint64_t HostMiB() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) / kMiB
                               : 0;
}

// tcmalloc calls it, and tries again, where an allocation fails: nothing is kept any more, and what lives needs more
// than the limit. Once the limit exceeds the host's memory, the system itself has refused: then malloc fails, with this
// limit and without the handler until ReleaseHeap restores both.
void GiveWay() {
  const uint64_t next = current_mib + kStepMiB;
  if (next > HostMiB() + configured_mib) {
    std::set_new_handler(nullptr);
    return;
  }
  SetLimit(next);
}

void RestoreLimit() {
  std::set_new_handler(GiveWay);
  SetLimit(configured_mib);
}

}  // namespace

HeapUse GetHeapUse() {
  if (MallocExtension_GetNumericProperty == nullptr) return {};
  return {.live_bytes = Property("generic.current_allocated_bytes"),
          .kept_bytes = Property("tcmalloc.pageheap_free_bytes")};
}

void LimitHeap(uint64_t bytes) {
  if (MallocExtension_SetNumericProperty == nullptr || tc_set_new_mode == nullptr) return;
  configured_mib = std::max<uint64_t>(1, bytes / kMiB);
  tc_set_new_mode(1);  // malloc calls the handler as well, not only operator new
  RestoreLimit();
}

void ReleaseHeap(uint64_t bytes_max) {
  if (MallocExtension_ReleaseToSystem == nullptr) return;
  MallocExtension_ReleaseToSystem(bytes_max);
  const uint64_t configured = configured_mib;
  if (configured == 0 || current_mib == configured) return;
  if (Property("generic.current_allocated_bytes") < configured * kMiB) RestoreLimit();
}

void HeapTrimmer::OnBeat() {
  kept_bytes_[beat_++ % kept_bytes_.size()] = GetHeapUse().kept_bytes;
  const uint64_t unused = *std::ranges::min_element(kept_bytes_);
  if (unused > spared_bytes_) ReleaseHeap(std::min(unused - spared_bytes_, step_bytes_));
}

}  // namespace gangway
