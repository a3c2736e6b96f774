// Outbox: frames waiting for the network, already serialized into the Batch messages that will
// carry them. What is queued while a write is in flight goes out as one message; the bytes of a
// bulk chunk are referred to, never copied. Not thread-safe. Owns the bytes until gRPC has sent
// them.
#ifndef GANGWAY_TRANSPORT_GRPC_OUTBOX_H_
#define GANGWAY_TRANSPORT_GRPC_OUTBOX_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class Outbox {
 public:
  // `bytes` = frame.ByteSizeLong(), called on this very object since it last changed: the sizes in
  // it are used.
  void Append(wire::Frame&& frame, size_t bytes);
  void AppendClose(std::string_view reason);

  bool empty() const { return messages_.empty(); }
  void Clear() { messages_.clear(); }

  // The next message and the bytes of the frames in it. Not when empty.
  grpc::ByteBuffer Take(size_t* bytes);

 private:
  struct Message {
    std::vector<grpc::Slice> slices;
    std::string tail;  // follows the slices
    size_t bytes = 0;
  };

  Message& MessageFor(size_t bytes);
  static void FlushTail(Message& message);
  void AppendBulk(wire::Frame&& frame, size_t bytes);

  std::deque<Message> messages_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_OUTBOX_H_
