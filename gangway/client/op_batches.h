// OpBatches: the operations of a session that no frame has taken yet, in their order, in frames of bounded size.
// Pure; not thread-safe. The bound is on what has not ended of a session (TM-2, Submitter::WhenRoom).
#ifndef GANGWAY_CLIENT_OP_BATCHES_H_
#define GANGWAY_CLIENT_OP_BATCHES_H_

#include <utility>
#include <vector>

#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class OpBatches {
 public:
  static constexpr int kFrameOpsMax = 4096;
  static constexpr int kBurstOps = 256;  // of which a burst is sent without waiting for more

  bool empty() const { return frames_.empty(); }
  // There is enough for a frame.
  bool HasBurst() const {
    if (frames_.empty()) return false;
    return frames_.size() > 1 || frames_.back().session_batch().ops_size() >= kBurstOps;
  }

  // A frame of its own, with no operation.
  void Add(wire::Frame frame) { frames_.push_back(std::move(frame)); }
  // A new operation, behind all others.
  wire::Op* AddOp() {
    const bool has_room = !frames_.empty() && frames_.back().has_session_batch() &&
                          frames_.back().session_batch().ops_size() < kFrameOpsMax;
    if (!has_room) frames_.emplace_back();
    return frames_.back().mutable_session_batch()->add_ops();
  }
  // Null: there is none, or a frame has taken it.
  wire::Op* LastOp() {
    if (frames_.empty() || !frames_.back().has_session_batch()) return nullptr;
    auto* const ops = frames_.back().mutable_session_batch()->mutable_ops();
    return ops->empty() ? nullptr : ops->Mutable(ops->size() - 1);
  }

  // Puts all frames into `frames`, whose memory it keeps.
  void TakeInto(std::vector<wire::Frame>& frames) {
    frames.clear();
    frames.swap(frames_);
  }
  void Clear() { frames_.clear(); }

 private:
  std::vector<wire::Frame> frames_;  // the last one is being filled
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_OP_BATCHES_H_
