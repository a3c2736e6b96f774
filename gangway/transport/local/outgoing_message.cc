// Implementation of outgoing_message.h.
#include "gangway/transport/local/outgoing_message.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>
#include <utility>

namespace gangway::transport {

void OutgoingMessage::Set(Outbox::Message message) {
  message_ = std::move(message);
  left_.clear();
  first_ = 0;
  size_t bytes = 0;
  left_.push_back({header_.data(), header_.size()});
  for (const Outbox::Piece& piece : message_.pieces) {
    const std::string_view view = piece.bytes();
    left_.push_back({const_cast<char*>(view.data()), view.size()});  // sendmsg reads it
    bytes += view.size();
  }
  header_ = MessageHeader(bytes);
}

OutgoingMessage::Written OutgoingMessage::WriteTo(int socket) {
  msghdr message{};
  message.msg_iov = left_.data() + first_;
  message.msg_iovlen = std::min<size_t>(left_.size() - first_, IOV_MAX);
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return {.error = errno == EWOULDBLOCK ? EAGAIN : errno};
  Skip(static_cast<size_t>(sent));
  return {.bytes = static_cast<size_t>(sent)};
}

void OutgoingMessage::Skip(size_t bytes) {
  while (bytes > 0) {
    iovec& front = left_[first_];
    const size_t taken = std::min(bytes, front.iov_len);
    front.iov_base = static_cast<char*>(front.iov_base) + taken;
    front.iov_len -= taken;
    bytes -= taken;
    if (front.iov_len == 0) ++first_;
  }
}

}  // namespace gangway::transport
