// Implementation of shared_heap.h. tcmalloc asks a system allocator of ours for fresh memory. It gives pages back by
// madvise, which is defined here, too, because pages of a file return to the system in another way.
#include "gangway/base/shared_heap.h"

#include <fcntl.h>
#include <gperftools/malloc_extension.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"

namespace gangway {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
// Of the file's first address, so that what is aligned in the file is aligned in memory, too. Huge pages are as large.
constexpr uint64_t kAlignment = uint64_t{2} << 20;

// Set before malloc takes memory here.
std::byte* base = nullptr;
uint64_t size = 0;
// Addresses given out: malloc keeps them, and gives back pages only.
std::atomic<uint64_t> used = 0;

class FileAllocator final : public SysAllocator {
 public:
  explicit FileAllocator(SysAllocator* otherwise) : otherwise_(otherwise) {}

  // Malloc calls it, so it must not allocate.
  void* Alloc(size_t bytes, size_t* actual, size_t alignment) override {
    const auto page = static_cast<uint64_t>(getpagesize());
    const uint64_t aligned = std::max<uint64_t>(alignment, page);
    const uint64_t whole = (uint64_t{bytes} + page - 1) / page * page;
    uint64_t before = used.load(std::memory_order_relaxed), begin = 0;
    do {
      begin = (before + aligned - 1) / aligned * aligned;
      if (aligned > kAlignment || whole < bytes || begin > size || whole > size - begin)
        return otherwise_->Alloc(bytes, actual, alignment);
    } while (!used.compare_exchange_weak(before, begin + whole, std::memory_order_relaxed));
    if (actual != nullptr) *actual = whole;
    return base + begin;
  }

 private:
  SysAllocator* const otherwise_;  // when the file is full
};

// Malloc uses addresses again, but not for larger blocks: with holes it needs more of them than there is memory.
uint64_t BytesOfFile() {
  uint64_t bytes = kBytesMax;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page > 0)
    bytes = std::min(bytes, 2 * static_cast<uint64_t>(pages) * static_cast<uint64_t>(page));
  rlimit limit{};  // beyond it the system would end the process
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min<uint64_t>(bytes, limit.rlim_cur);
  return bytes / kAlignment * kAlignment;
}

absl::Status Refused(uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no file of ", bytes, " bytes in memory for the heap: ", std::strerror(errno)));
}

// At a multiple of kAlignment. Null: the system has refused, and errno says why.
void* MapAligned(const FileDescriptor& file, uint64_t bytes) {
  const uint64_t reserved_bytes = bytes + kAlignment;
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(reserved);
  const uint64_t before = kAlignment - reinterpret_cast<uintptr_t>(reserved) % kAlignment;
  void* const mapped = mmap(first + before, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file.get(), 0);
  const int why = errno;
  munmap(first, mapped == MAP_FAILED ? reserved_bytes : before);
  if (mapped != MAP_FAILED && before < kAlignment)
    munmap(first + before + bytes, kAlignment - before);
  errno = why;
  return mapped == MAP_FAILED ? nullptr : mapped;
}

// Each worker of a host maps the heaps of all others.
bool HasFewAddresses() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

absl::StatusOr<SharedHeap> ShareHeap() {
  if (HasFewAddresses())
    return absl::ResourceExhaustedError("the process's addresses are limited (ulimit -v)");
  const uint64_t bytes = BytesOfFile();
  const FileDescriptor file(memfd_create("gangway-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed, so that no process can cut off what another one reads.
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Refused(bytes);
  // What others get cannot be written to.
  FileDescriptor to_read(
      open(absl::StrCat("/proc/self/fd/", file.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (to_read.get() < 0) return Refused(bytes);
  void* const mapped = MapAligned(file, bytes);
  if (mapped == nullptr) return Refused(bytes);
  // A core dump would take a page of memory for each address.
  if (madvise(mapped, bytes, MADV_DONTFORK) != 0 || madvise(mapped, bytes, MADV_DONTDUMP) != 0) {
    absl::Status why = Refused(bytes);  // before munmap changes errno
    munmap(mapped, bytes);
    return why;
  }
  base = static_cast<std::byte*>(mapped);
  size = bytes;
  MallocExtension& malloc_here = *MallocExtension::instance();
  // For good: malloc has it.
  static auto* const allocator = new FileAllocator(malloc_here.GetSystemAllocator());
  malloc_here.SetSystemAllocator(allocator);
  return SharedHeap{to_read.Release(), base, size};
}

}  // namespace gangway

// Pages of the heap's file go back when they are removed from the file; other advice is as given.
extern "C" int madvise(void* at, size_t bytes, int advice) noexcept {
  using gangway::base;
  const auto* const first = static_cast<const std::byte*>(at);
  const bool is_ours =
      gangway::base != nullptr && first >= gangway::base && first < gangway::base + gangway::size;
  if (is_ours && (advice == MADV_DONTNEED || advice == MADV_FREE)) advice = MADV_REMOVE;
  return static_cast<int>(syscall(SYS_madvise, at, bytes, advice));
}
