// For tests: a link that keeps what it is sent, and takes as many frames as a test says. Belongs to one thread at a
// time.
#ifndef GANGWAY_TRANSPORT_RECORDING_LINK_TEST_UTIL_H_
#define GANGWAY_TRANSPORT_RECORDING_LINK_TEST_UTIL_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "gangway/transport/transport.h"

namespace gangway::transport {

class RecordingLink final : public Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    if (room == 0) return absl::ResourceExhaustedError("the queue is full");
    --room;
    frames.push_back(std::move(frame));
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return 0; }
  size_t frame_bytes_max() const override { return SIZE_MAX; }
  void Close(const absl::Status&) override {}
  const Peer& peer() const override { return peer_; }

  std::vector<wire::Frame> frames;
  size_t room = SIZE_MAX;  // frames that it takes

 private:
  const Peer peer_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_RECORDING_LINK_TEST_UTIL_H_
