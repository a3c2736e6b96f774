// Implementation of arena.h.
#include "gangway/collective/execution/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::collective {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> Arena::MapAs(FileDescriptor descriptor, uint32_t devices,
                                                    int access) {
  void* base = mmap(nullptr, devices * sizeof(Region), access, MAP_SHARED, descriptor.get(), 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for the collectives of ", devices,
                                                     " devices (", devices * sizeof(Region),
                                                     " bytes): ", std::strerror(errno)));
  }
  return std::shared_ptr<Arena>(
      new Arena(std::move(descriptor), static_cast<Region*>(base), devices));
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(uint32_t devices) {
  if (devices == 0 || devices > kDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat("collectives of a worker with ", devices,
                                                   " devices; at most ", kDevicesMax, " can be"));
  }
  FileDescriptor descriptor(memfd_create("gangway-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = static_cast<off_t>(devices * sizeof(Region));
  // With its pages, so that a lack of memory is an error here and not a signal at a write.
  if (!descriptor.valid() || ftruncate(descriptor.get(), bytes) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0 ||
      fallocate(descriptor.get(), 0, 0, bytes) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for the collectives of ", devices,
                                                     " devices: ", std::strerror(errno)));
  }
  return MapAs(std::move(descriptor), devices, PROT_READ | PROT_WRITE);
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
  return MapAs(std::move(descriptor), devices, PROT_READ);
}

Arena::~Arena() { munmap(regions_, bytes()); }

}  // namespace gangway::collective
