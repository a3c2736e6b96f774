// Implementation of outgoing_shard.h.
#include "gangway/transport/bulk/outgoing_shard.h"

#include <algorithm>
#include <cstring>

namespace gangway::transport {

OutgoingShard OutgoingShard::Placed(size_t size) {
  OutgoingShard shard;
  shard.size_ = size;
  shard.placed_ = true;
  return shard;
}

OutgoingShard OutgoingShard::Failed(wire::Failure why) {
  OutgoingShard shard;
  shard.failure_ = std::move(why);
  return shard;
}

OutgoingShard::Step OutgoingShard::Next(size_t bytes_max) const {
  const bool at_once = placed_ || block_ != nullptr || failure_.code() != 0;
  const size_t size = at_once ? size_ - offset_ : std::min(bytes_max, size_ - offset_);
  Step step{.piece = {.offset = offset_,
                      .size = size,
                      .total = offset_ == 0 ? size_ : 0,
                      .last = offset_ + size == size_}};
  if (failure_.code() != 0) {
    step.way = Way::kFailed;
  } else if (block_ != nullptr) {
    step.way = Way::kLent;
  } else if (placed_) {
    step.way = Way::kPlaced;
  } else if (target_ != nullptr) {
    if (target_.get() != bytes_.data())
      std::memcpy(target_.get() + offset_, bytes_.data() + offset_, size);
    step.way = step.piece.last ? Way::kPlaced : Way::kWritten;
  } else {
    step.bytes = bytes_.subspan(offset_, size);
  }
  return step;
}

void OutgoingShard::Advance(const Step& step) {
  offset_ += step.piece.size;
  done_ = step.piece.last;
}

}  // namespace gangway::transport
