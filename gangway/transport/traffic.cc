// Implementation of traffic.h.
#include "gangway/transport/traffic.h"

#include <atomic>

namespace gangway::transport {
namespace {

struct Counter {
  std::atomic<uint64_t> frames{0}, bytes{0};

  void Add(uint64_t more_frames, uint64_t more_bytes) {
    frames.fetch_add(more_frames, std::memory_order_relaxed);
    bytes.fetch_add(more_bytes, std::memory_order_relaxed);
  }
};

Counter sent, received;

}  // namespace

void CountSent(const wire::Frame& frame, size_t bytes) {
  if (!frame.has_heartbeat()) sent.Add(1, bytes);
}

void CountReceived(size_t frames, size_t bytes) { received.Add(frames, bytes); }

Traffic TrafficOfProcess() {
  return {.frames_sent = sent.frames.load(std::memory_order_relaxed),
          .bytes_sent = sent.bytes.load(std::memory_order_relaxed),
          .frames_received = received.frames.load(std::memory_order_relaxed),
          .bytes_received = received.bytes.load(std::memory_order_relaxed)};
}

}  // namespace gangway::transport
