// Outbox: frames waiting for the network, already serialized into the Batch messages that will
// carry them. What is queued while a write is in flight goes out as one message; the bytes of a
// bulk chunk are moved, never copied. Not thread-safe. Owns the bytes until they are taken.
#ifndef GANGWAY_TRANSPORT_OUTBOX_H_
#define GANGWAY_TRANSPORT_OUTBOX_H_

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

  struct Message {
    std::vector<std::string> pieces;  // one after the other, a Batch; none is empty
    size_t bytes = 0;                 // of its frames, as given to Append
  };
  // The next message. Not when empty.
  Message Take();

 private:
  struct Waiting {
    Message message;
    std::string tail;  // follows the pieces
  };

  Waiting& WaitingFor(size_t bytes);
  static void FlushTail(Waiting& waiting);
  void AppendBulk(wire::Frame&& frame, size_t bytes);

  std::deque<Waiting> messages_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_OUTBOX_H_
