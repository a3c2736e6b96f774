// Implementation of host_seats.h.
#include "gangway/base/host_seats.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gangway {
namespace {

constexpr size_t kTriesMax = 4;
constexpr off_t kFirstByte = off_t{1} << 40;  // where no other program locks

}  // namespace

HostSeats::HostSeats(std::string file, size_t seats)
    : path_(std::move(file)), seats_(std::min(seats, kSeatsMax)) {
  if (seats_ == 0) return;
  Open();
  next_ = static_cast<size_t>(getpid()) % seats_;
}

// Without O_NONBLOCK, a FIFO would stop the caller.
void HostSeats::Open() {
  file_.Reset(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

std::optional<size_t> HostSeats::Take() {
  if (!file_.valid()) return std::nullopt;
  for (size_t tries = 0; tries < std::min(seats_, kTriesMax); ++tries) {
    const size_t seat = next_.load(std::memory_order_relaxed) % seats_;
    const uint64_t bit = uint64_t{1} << seat;
    if ((held_.fetch_or(bit) & bit) == 0) {
      if (Lock(seat, F_WRLCK)) return seat;
      held_.fetch_and(~bit);
    }
    next_.store(seat + 1, std::memory_order_relaxed);
  }
  return std::nullopt;
}

void HostSeats::Return(size_t seat) {
  (void)Lock(seat, F_UNLCK);
  held_.fetch_and(~(uint64_t{1} << seat));
}

void HostSeats::LeaveParent() {
  held_ = 0;
  if (file_.valid()) Open();
}

bool HostSeats::Lock(size_t seat, short type) const {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kFirstByte + static_cast<off_t>(seat);
  lock.l_len = 1;
  return fcntl(file_.get(), F_OFD_SETLK, &lock) == 0;
}

}  // namespace gangway
