// Implementation of incoming_shard.h.
#include "gangway/transport/bulk/incoming_shard.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::transport {

absl::Status IncomingShard::Take(const ShardPiece& piece) {
  const auto wrong = [&](std::string_view why) {
    const std::string size = size_ ? absl::StrCat(*size_, " bytes") : "a size that was not told";
    return absl::InvalidArgumentError(absl::StrCat(piece.size, " bytes at offset ", piece.offset,
                                                   " of a shard of ", size, ", of which ",
                                                   received_, " had arrived: ", std::string(why)));
  };
  if (complete_) return wrong("the shard is complete");
  if (piece.offset != received_) return wrong("pieces must come in order");
  if (piece.total != 0 &&
      (begun_ ? piece.total != size_ : piece.total != size_.value_or(piece.total)))
    return wrong(absl::StrCat("a piece tells a size of ", piece.total));
  const std::optional<uint64_t> size = piece.total != 0 ? piece.total : size_;
  if (piece.size > size.value_or(UINT64_MAX) - received_) return wrong("they do not fit");
  if (piece.last && size && received_ + piece.size != *size)
    return wrong("the last piece does not complete it");
  size_ = size;
  received_ += piece.size;
  begun_ = true;
  complete_ = piece.last;
  return absl::OkStatus();
}

absl::Status IncomingShard::Place() {
  if (begun_ || complete_) {
    return absl::InvalidArgumentError(
        absl::StrCat("all bytes of a shard were announced in one place after ", received_,
                     " of them had arrived in pieces, or twice"));
  }
  complete_ = true;
  return absl::OkStatus();
}

absl::Status StagedShard::Take(const ShardPiece& piece, std::string_view bytes,
                               const Charge& charge) {
  lent_ = LentBlock();
  const bool first = !incoming_.begun();
  GANGWAY_RETURN_IF_ERROR(incoming_.Take(piece));
  const uint64_t total = incoming_.size();
  if (total > charged_) {
    GANGWAY_RETURN_IF_ERROR(charge(total - charged_));
    charged_ = total;
  }
  // A shard of untold size grows as it comes: Append doubles its memory, which keeps the copying linear.
  if ((first && !bytes_.Reserve(total)) || !bytes_.Append(bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system has no memory for the ", total, " bytes of a shard"));
  }
  return absl::OkStatus();
}

absl::Status StagedShard::Place() {
  if (!lent_) {
    return absl::InvalidArgumentError(
        "all bytes of a shard were announced in a block that it does not have");
  }
  GANGWAY_RETURN_IF_ERROR(incoming_.Place());
  placed_ = lent_.Return();
  return absl::OkStatus();
}

StagedShard::Bytes StagedShard::TakeBytes() {
  if (placed_ != nullptr) {
    const std::span<const std::byte> bytes = placed_->bytes();
    return {bytes, std::move(placed_)};
  }
  auto owner = std::make_shared<AlignedBytes>(std::move(bytes_));
  return {owner->span(), owner};
}

}  // namespace gangway::transport
