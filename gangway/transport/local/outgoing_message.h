// The message that a local link writes, with what the socket has not taken of it.
//
// Not thread-safe. Owns the message until the next one.
#ifndef GANGWAY_TRANSPORT_LOCAL_OUTGOING_MESSAGE_H_
#define GANGWAY_TRANSPORT_LOCAL_OUTGOING_MESSAGE_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <vector>

#include "gangway/transport/local/message_reader.h"
#include "gangway/transport/outbox.h"

namespace gangway::transport {

class OutgoingMessage {
 public:
  bool is_written() const { return first_ == left_.size(); }
  // Begins the next message, with its header. Requires is_written().
  void Set(Outbox::Message message);

  struct Written {
    size_t bytes = 0;
    int error = 0;  // of errno; 0: none
  };
  // Writes as much as the socket takes now, without waiting. EAGAIN: the socket is full. Requires !is_written().
  Written WriteTo(int socket);

 private:
  void Skip(size_t bytes);

  std::array<char, kMessageHeaderBytes> header_;
  Outbox::Message message_;
  std::vector<iovec> left_;  // of header and pieces
  size_t first_ = 0;         // of left_
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_OUTGOING_MESSAGE_H_
