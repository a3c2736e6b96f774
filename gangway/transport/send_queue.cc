// Implementation of send_queue.h.
#include "gangway/transport/send_queue.h"

#include <string>
#include <utility>

#include "gangway/base/trace.h"
#include "gangway/transport/link_set.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {

absl::Status SendQueue::Append(wire::Frame&& frame, FrameParts parts, size_t bytes,
                               const Peer& peer) {
  const size_t queued = this->bytes();
  if (queued >= options_.queue_bytes_max) {
    above_writable_ = true;
    return QueueFull(peer, queued, options_.queue_bytes_max);
  }
  Trace(TraceKind::kSend, trace_link_, {}, {}, bytes);
  CountSent(frame, bytes);
  outbox_.Append(std::move(frame), parts, bytes);
  SetBytes(queued + bytes);
  if (queued + bytes > options_.writable_bytes()) above_writable_ = true;
  return absl::OkStatus();
}

void SendQueue::AppendClose(const absl::Status& reason) {
  outbox_.AppendClose(reason.ok() ? "closed by the peer" : std::string(reason.message()));
}

Outbox::Message SendQueue::Take() {
  Outbox::Message message = outbox_.Take();
  writing_bytes_ = message.bytes;
  return message;
}

bool SendQueue::NoteWritten() {
  SetBytes(bytes() - std::exchange(writing_bytes_, 0));
  return bytes() <= options_.writable_bytes() && std::exchange(above_writable_, false);
}

void SendQueue::Clear() {
  outbox_.Clear();
  writing_bytes_ = 0;
  above_writable_ = false;
  SetBytes(0);
}

}  // namespace gangway::transport
