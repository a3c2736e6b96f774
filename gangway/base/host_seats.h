// HostSeats: a limited number of seats that all processes of a host share, for what only so many of them may do at
// once.
//
// A seat is a byte of a file that all of them can open, and its holder has a lock on that byte (fcntl, of the open
// file, so that other descriptors of the process do not matter). The kernel drops the locks of a process that ends,
// however it ends, so no seat is ever left taken. Nothing is written: the file may be empty, or a device.
//
// Threading: thread-safe; never waits, but for short system calls. Failure: a file that cannot be used has no seats.
// Processes that see different files, as in containers with devices of their own, count apart.
#ifndef GANGWAY_BASE_HOST_SEATS_H_
#define GANGWAY_BASE_HOST_SEATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "gangway/base/file_descriptor.h"

namespace gangway {

class HostSeats {
 public:
  static constexpr size_t kSeatsMax = 64;

  // At most kSeatsMax of `seats` are used.
  HostSeats(std::string file, size_t seats);

  // None: all are taken, or the few that were tried. Belongs to the calling process until Return.
  std::optional<size_t> Take();
  void Return(size_t seat);

  // In a forked child, before anything else: it holds none of its parent's seats, and does not keep them taken.
  void LeaveParent();

 private:
  void Open();
  bool Lock(size_t seat, short type) const;

  const std::string path_;
  const size_t seats_;
  FileDescriptor file_;
  std::atomic<uint64_t> held_{
      0};  // a bit for each seat that this object holds: it would get the same lock again
  std::atomic<size_t> next_{0};  // where the next search begins
};

}  // namespace gangway

#endif  // GANGWAY_BASE_HOST_SEATS_H_
