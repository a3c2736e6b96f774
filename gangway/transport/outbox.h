// Outbox: frames that wait for the network, already serialized into the Batch messages that will
// carry them. Frames queued while a write is in flight coalesce into one message, up to a size; the
// bytes of a bulk chunk are moved, never copied, and so is the reference to a large part that other links carry, too
// (frame_part.h). Not thread-safe. Owns the bytes until they are taken.
#ifndef GANGWAY_TRANSPORT_OUTBOX_H_
#define GANGWAY_TRANSPORT_OUTBOX_H_

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/transport/frame_part.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class Outbox {
 public:
  // One frame: `parts` follow `frame`. `bytes` must be the sum of frame.ByteSizeLong(), called on this object after its
  // last change, since the sizes that the call cached in it are used, and of the parts.
  void Append(wire::Frame&& frame, FrameParts parts, size_t bytes);
  void AppendClose(std::string_view reason);

  bool empty() const { return messages_.empty(); }
  void Clear() { messages_.clear(); }

  struct Piece {
    std::string own;
    FramePartRef shared;  // null: its bytes are `own`
    std::string_view bytes() const { return shared == nullptr ? own : shared->bytes(); }
  };
  struct Message {
    std::vector<Piece> pieces;  // concatenated they are a Batch; none is empty
    size_t bytes = 0;           // of its frames, as given to Append
  };
  // The next message. Requires !empty().
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
