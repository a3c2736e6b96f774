// A part of a frame that several links carry, such as an item for all workers of an island. Its bytes are made once, by
// the first link that needs them; links that move frames inside a process need none.
//
// A frame that is a head and parts arrives as one frame: protobuf's encoding of messages that are merged is the
// encodings of them one after the other. So repeated fields, as those of a batch, go on from part to part.
//
// Immutable, so thread-safe.
#ifndef GANGWAY_TRANSPORT_FRAME_PART_H_
#define GANGWAY_TRANSPORT_FRAME_PART_H_

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/base/call_once.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class FramePart {
 public:
  explicit FramePart(wire::Frame frame) : frame_(std::move(frame)) {}
  FramePart(const FramePart&) = delete;
  FramePart& operator=(const FramePart&) = delete;

  const wire::Frame& frame() const { return frame_; }
  const std::string& bytes() const {
    absl::call_once(made_, [this] { bytes_ = frame_.SerializeAsString(); });
    return bytes_;
  }

 private:
  const wire::Frame frame_;
  mutable absl::once_flag
      made_;                   // with that of std, each first call asks the kernel to wake others
  mutable std::string bytes_;  // by bytes()
};

using FramePartRef = std::shared_ptr<const FramePart>;
using FrameParts = std::span<const FramePartRef>;

inline size_t BytesOf(FrameParts parts) {
  size_t bytes = 0;
  for (const FramePartRef& part : parts) bytes += part->bytes().size();
  return bytes;
}

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_FRAME_PART_H_
