// Implementation of socket_watches.h.
#include "gangway/transport/local/socket_watches.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <utility>

namespace gangway::transport {
namespace {

constexpr uint32_t kReads = EPOLLIN | EPOLLRDHUP | EPOLLET;

}  // namespace

SocketWatches::SocketWatches(IoThread* io, int socket)
    : io_(io), io_id_(io->NextId()), socket_(socket) {}

uint32_t SocketWatches::Interest() const {
  uint32_t interest = EPOLLET;
  if (!loop_reads()) interest |= kReads;
  if (awaits_room_) interest |= EPOLLOUT;
  return interest;
}

absl::Status SocketWatches::Begin(std::shared_ptr<IoThread::Watched> link) {
  state_ = State::kBegun;
  return io_->Watch(io_id_, socket_, Interest(), std::move(link));
}

void SocketWatches::End() {
  state_ = State::kEnded;
  ForgetReads();
  io_->Forget(io_id_, socket_);
}

void SocketWatches::MoveReads(const std::shared_ptr<Poller::Watched>& reader) {
  if (loop_ == nullptr || loop_reads() || state_ == State::kEnded) return;
  const uint64_t id = loop_->NextId();
  if (!loop_->Watch(id, socket_, kReads, reader).ok()) {
    loop_ = nullptr;  // the IoThread goes on
    return;
  }
  loop_id_ = id;
  WatchAgain();
}

void SocketWatches::ForgetReads() {
  if (const uint64_t id = std::exchange(loop_id_, 0)) loop_->Forget(id, socket_);
}

bool SocketWatches::HasUnread() const {
  int bytes = 0;
  return loop_reads() && ioctl(socket_, FIONREAD, &bytes) == 0 && bytes > 0;
}

void SocketWatches::AwaitRoom() {
  awaits_room_ = true;
  WatchAgain();
}

void SocketWatches::StopAwaitingRoom() {
  awaits_room_ = false;
  WatchAgain();
}

void SocketWatches::WatchAgain() {
  if (state_ == State::kBegun) io_->Change(io_id_, socket_, Interest());
}

void SocketWatches::WatchReadsAgain() {
  if (!loop_reads()) return WatchAgain();
  loop_->Change(loop_id_, socket_, kReads);
}

}  // namespace gangway::transport
