// SendQueue: the frames that one end of a link has taken and the network has not, within the limits of the link. A full
// queue takes no frame; its owner tells the sender when it has shrunk to LinkOptions::writable_bytes again.
//
// Threading: not thread-safe; bytes() may be called from any thread. Owns the bytes until they are taken.
#ifndef GANGWAY_TRANSPORT_SEND_QUEUE_H_
#define GANGWAY_TRANSPORT_SEND_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gangway/transport/frame_part.h"
#include "gangway/transport/outbox.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class SendQueue {
 public:
  // `trace_link`: what traces call the link.
  SendQueue(const LinkOptions& options, uint32_t trace_link)
      : options_(options), trace_link_(trace_link) {}

  // Of the frames in the queue, and of those in the message that is being written.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // One frame to `peer`: as Outbox::Append. RESOURCE_EXHAUSTED: the queue is full.
  absl::Status Append(wire::Frame&& frame, FrameParts parts, size_t bytes, const Peer& peer);
  // Says why this end closes the link; OK: for no reason.
  void AppendClose(const absl::Status& reason);

  bool empty() const { return outbox_.empty(); }
  // The next message. Its bytes count until NoteWritten. Requires !empty().
  Outbox::Message Take();
  // The message that was taken last, if any, is written. True: the sender is to be told that the queue is writable.
  [[nodiscard]] bool NoteWritten();

  // Nothing more can be sent, so the sender is told nothing more.
  void Clear();

 private:
  void SetBytes(size_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }

  const LinkOptions options_;
  const uint32_t trace_link_;
  Outbox outbox_;
  std::atomic<size_t> bytes_ = 0;
  size_t writing_bytes_ = 0;     // of the message that was taken last
  bool above_writable_ = false;  // since the sender was told, or began
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SEND_QUEUE_H_
