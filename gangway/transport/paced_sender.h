// PacedSender: the sending end of a link that carries batches. It cuts a batch into frames of bounded size, and a large
// program or executable into pieces (pieces.h); it keeps what the link's queue should not hold and sends it as the link
// drains. So the size of a batch is no limit, the bytes in flight on one link are bounded, and heartbeats pass between
// the frames of a long batch (SendNow).
//
// A program that many links carry is given as a shared string: what waits holds a reference, and a copy is made of one
// piece at a time. What is not shared counts against a limit. Items that many links carry are given as parts
// (frame_part.h), which are serialized once, unless they wait here.
//
// Threading: not thread-safe; the owner serializes all calls. It must call OnWritable at the link's on_writable.
// Failure: an error of Send or OnWritable, other than Send's INVALID_ARGUMENT, means that messages are lost: the owner
// must close the link.
#ifndef GANGWAY_TRANSPORT_PACED_SENDER_H_
#define GANGWAY_TRANSPORT_PACED_SENDER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/transport/pieces.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// For links that carry batches. A heartbeat waits behind what is queued: this much and one frame.
inline constexpr LinkOptions kBatchLink = {.writable_bytes_max = size_t{1} << 20};

class PacedSender {
 public:
  struct Options {
    size_t frame_bytes = size_t{1} << 20;          // aim; at most half of what the link takes
    size_t waiting_bytes_max = size_t{256} << 20;  // beside shared programs; a batch may exceed it
    uint64_t fields_bytes_max = kLargeFieldsBytesMax;
  };
  // Completes every frame just before it goes to the link: epoch, sequence number. May be empty.
  using Stamp = std::function<void(wire::Frame&)>;
  // The program of a Load that comes without it; null: the Load has its own.
  using ProgramOf = std::function<std::shared_ptr<const std::string>(const wire::Load&)>;

  PacedSender(std::shared_ptr<Link> link, Stamp stamp, const Options& options);

  // Sends in the order of the calls. INVALID_ARGUMENT: one item is too large; nothing of the frame is sent.
  // RESOURCE_EXHAUSTED: too much waits already, since the peer does not read. Also the errors of Link::Send.
  [[nodiscard]] absl::Status Send(wire::Frame frame, const ProgramOf& program_of = {});
  // Likewise, of one frame that consists of these parts.
  [[nodiscard]] absl::Status SendParts(FrameParts parts, const ProgramOf& program_of = {});
  // Ahead of everything that waits. For small frames without an order: heartbeats.
  [[nodiscard]] absl::Status SendNow(wire::Frame frame);
  [[nodiscard]] absl::Status OnWritable() { return Pump(); }

  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  using Bytes = std::shared_ptr<const std::string>;
  struct Waiting {
    wire::Frame frame;
    size_t bytes = 0;              // of all that is not shared
    Bytes program;                 // of a Load; small: it is placed when the frame is sent
    std::vector<Bytes> fields;     // of the frame's attachments
    size_t field = 0, offset = 0;  // sent so far
  };

  bool GoesAsItIs(const wire::Frame& frame, const ProgramOf& program_of) const;
  bool GoAsTheyAre(FrameParts parts, const ProgramOf& program_of) const;
  bool GoesAtOnce() const;  // whatever is small enough
  bool moves_frames() const;
  void Split(wire::Frame frame, bool loads_alone, std::vector<Waiting>& parts) const;
  absl::Status TakeFields(Waiting& part, const ProgramOf& program_of) const;
  absl::Status Pump();
  wire::Frame NextPiece(Waiting& part) const;

  const std::shared_ptr<Link> link_;
  const Stamp stamp_;
  const Options options_;
  const size_t frame_bytes_;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_PACED_SENDER_H_
