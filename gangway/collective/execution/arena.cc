// Implementation of arena.h.
#include "gangway/collective/execution/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::collective {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// Added once it is mapped here: no other process can map it for writing.
constexpr int kWriteSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// What is read of these workers takes one page of a region.
constexpr uint32_t kWorkersOfPage = 4096 / (sizeof(uint64_t) * kDevicesMax);

// With the reason that the last system call gave.
absl::Status NoMemory(uint32_t devices, uint32_t workers) {
  const std::string reason = std::strerror(errno);
  const auto free = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
                    static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return absl::ResourceExhaustedError(absl::StrCat(
      "no memory for the collectives of ", devices, " devices: they need ",
      Arena::MemoryFor(devices, workers), " bytes, ", free, " are free (", reason, ")"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> Arena::MapAs(int file, FileDescriptor kept, uint32_t devices,
                                                    int access, int flags) {
  void* base = mmap(nullptr, devices * sizeof(Region), access, flags, file, 0);
  if (base == MAP_FAILED) return NoMemory(devices, 0);
  return std::shared_ptr<Arena>(new Arena(std::move(kept), static_cast<Region*>(base), devices));
}

MessageWriter::MessageWriter(Region& region, uint64_t sequence)
    : region_(region), sequence_(sequence), slot_(sequence % kSlots) {
  region_.headers[slot_].sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

void MessageWriter::Publish(const MessageKey& key, bool shows) const {
  Region::Header& header = region_.headers[slot_];
  header.gang.store(key.gang, std::memory_order_relaxed);
  header.number.store(key.number, std::memory_order_relaxed);
  header.round.store(key.round, std::memory_order_relaxed);
  header.part.store(key.part, std::memory_order_relaxed);
  header.shows.store(shows ? 1 : 0, std::memory_order_relaxed);
  header.sequence.store(sequence_, std::memory_order_release);
}

absl::StatusOr<std::unique_ptr<ReadableHeap>> ReadableHeap::Map(const FileDescriptor& descriptor) {
  struct stat file{};
  // Of another file pages could vanish, which would end the process that reads them.
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(descriptor.get(), &file) != 0 ||
      file.st_size <= 0)
    return absl::InvalidArgumentError("a descriptor that is not of a worker's heap");
  const auto bytes = static_cast<uint64_t>(file.st_size);
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, descriptor.get(), 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no addresses for another worker's heap (",
                                                     bytes, " bytes): ", std::strerror(errno)));
  }
  madvise(base, bytes, MADV_DONTDUMP);  // a core dump would take a page of memory for each address
  auto heap = std::make_unique<ReadableHeap>(static_cast<const std::byte*>(base), bytes);
  heap->is_mapped_ = true;
  return heap;
}

ReadableHeap::~ReadableHeap() {
  if (is_mapped_) munmap(const_cast<std::byte*>(base_), bytes_);
}

std::optional<uint64_t> ReadableHeap::OffsetOf(std::span<const std::byte> buffer) const {
  const auto at = reinterpret_cast<uintptr_t>(buffer.data());
  const uintptr_t offset = at - reinterpret_cast<uintptr_t>(base_);  // wraps below the base
  if (At(offset, buffer.size()) == nullptr) return std::nullopt;
  return offset;
}

const std::byte* ReadableHeap::At(uint64_t offset, size_t bytes) const {
  return offset <= bytes_ && bytes <= bytes_ - offset ? base_ + offset : nullptr;
}

void Arena::SetHeap(std::shared_ptr<const ReadableHeap> heap) {
  MutexLock lock(mutex_);
  heap_.swap(heap);  // the earlier one ends without the lock
}

std::shared_ptr<const ReadableHeap> Arena::heap() const {
  MutexLock lock(mutex_);
  return heap_;
}

absl::Status Arena::CheckDevices(uint32_t devices) {
  if (devices != 0 && devices <= kDevicesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("collectives of a worker with ", devices,
                                                 " devices; at most ", kDevicesMax, " can be"));
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Anonymous(uint32_t devices) {
  GANGWAY_RETURN_IF_ERROR(CheckDevices(devices));
  return MapAs(-1, FileDescriptor(), devices, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(uint32_t devices) {
  GANGWAY_RETURN_IF_ERROR(CheckDevices(devices));
  FileDescriptor descriptor(memfd_create("gangway-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = static_cast<off_t>(devices * sizeof(Region));
  if (!descriptor.valid() || ftruncate(descriptor.get(), bytes) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return NoMemory(devices, 0);
  }
  const int file = descriptor.get();
  GANGWAY_ASSIGN_OR_RETURN(
      auto arena, MapAs(file, std::move(descriptor), devices, PROT_READ | PROT_WRITE, MAP_SHARED));
  GANGWAY_RETURN_IF_ERROR(arena->Allocate(0, offsetof(Region, consumed)));
  if (fcntl(arena->descriptor(), F_ADD_SEALS, kWriteSeals) != 0) {
    return absl::InternalError(
        absl::StrCat("the collectives' memory cannot be sealed: ", std::strerror(errno)));
  }
  return arena;
}

size_t Arena::MemoryFor(uint32_t devices, uint32_t workers) {
  const uint32_t pages = (workers + kWorkersOfPage - 1) / kWorkersOfPage;
  return devices * (offsetof(Region, consumed) + size_t{pages} * 4096);
}

// So that a lack of memory is an error here and not a signal at a write.
absl::Status Arena::Allocate(size_t begin, size_t end) const {
  for (uint32_t i = 0; i < devices_; ++i) {
    const auto at = static_cast<off_t>(i * sizeof(Region) + begin);
    if (fallocate(descriptor_.get(), 0, at, static_cast<off_t>(end - begin)) == 0) continue;
    return NoMemory(devices_,
                    static_cast<uint32_t>((end - std::min(end, offsetof(Region, consumed))) /
                                          (sizeof(uint64_t) * kDevicesMax)));
  }
  return absl::OkStatus();
}

absl::Status Arena::Reserve(uint32_t workers) {
  MutexLock lock(mutex_);
  if (workers <= reserved_ || !descriptor_.valid()) return absl::OkStatus();
  // Twice as much each time, so that an island whose workers become known one by one takes few calls.
  const uint32_t pages = (std::max(workers, 2 * reserved_) + kWorkersOfPage - 1) / kWorkersOfPage;
  const uint32_t wanted = std::min(kWorkersMax, pages * kWorkersOfPage);
  constexpr size_t kBytesOfWorker = sizeof(uint64_t) * kDevicesMax;
  const size_t begin = offsetof(Region, consumed);
  GANGWAY_RETURN_IF_ERROR(
      Allocate(begin + reserved_ * kBytesOfWorker, begin + wanted * kBytesOfWorker));
  reserved_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Map(FileDescriptor descriptor, uint32_t devices) {
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  struct stat file{};
  if (devices == 0 || devices > kDevicesMax || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(descriptor.get(), &file) != 0 ||
      file.st_size != static_cast<off_t>(devices * sizeof(Region))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a descriptor that is not of the collectives' memory of ", devices, " devices"));
  }
  // The mapping stays without the descriptor, and an island may have more workers than a process may have files.
  return MapAs(descriptor.get(), FileDescriptor(), devices, PROT_READ, MAP_SHARED);
}

Arena::~Arena() {
  munmap(regions_, bytes());
  count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace gangway::collective
