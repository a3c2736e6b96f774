// Implementation of mapped_segments.h.
#include "gangway/transport/shm/mapped_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::transport {
namespace {

constexpr size_t kSegmentsMax = 1024;

}  // namespace

MappedSegments::Mapping::~Mapping() { munmap(base, bytes); }

absl::Status MappedSegments::Add(const ReceivedDescriptor& received) {
  const auto [id, bytes] = received.name;
  const int fd = received.descriptor.get();
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat file{};
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed || fstat(fd, &file) != 0 || bytes == 0 || file.st_size != static_cast<off_t>(bytes) ||
      segments_.contains(id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Segment ", id, " is not sealed memory of ", bytes, " bytes, or is not new."));
  }
  if (segments_.size() >= kSegmentsMax)
    return absl::ResourceExhaustedError(absl::StrCat("More than ", kSegmentsMax, " segments."));
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Segment ", id, " of ", bytes, " bytes: ", std::strerror(errno)));
  }
  segments_.emplace(id, std::make_shared<Mapping>(static_cast<std::byte*>(base), bytes));
  return absl::OkStatus();
}

std::shared_ptr<std::byte> MappedSegments::Find(uint64_t segment, size_t offset,
                                                size_t bytes) const {
  auto entry = segments_.find(segment);
  if (entry == segments_.end()) return nullptr;
  const std::shared_ptr<Mapping>& mapping = entry->second;
  if (offset > mapping->bytes || bytes > mapping->bytes - offset) return nullptr;
  return {mapping, mapping->base + offset};
}

}  // namespace gangway::transport
