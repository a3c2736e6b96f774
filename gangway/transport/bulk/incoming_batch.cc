// Implementation of incoming_batch.h.
#include "gangway/transport/bulk/incoming_batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/sizes.h"
#include "gangway/base/status.h"

namespace gangway::transport {

IncomingBatch::IncomingBatch(std::vector<size_t> sizes) : shards_(sizes.size()) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    shards_[i].size = sizes[i];
    bytes_ = AddSizes(bytes_, sizes[i]);
  }
  incoming_ = IncomingShard(bytes_);
}

void IncomingBatch::Lend(size_t shard, std::shared_ptr<SharedBlock> block) {
  shards_[shard].lent = LentBlock(std::move(block));
  lent_bytes_ += shards_[shard].size;
  ++lent_;
}

absl::Status IncomingBatch::Place() {
  if (lent_ == 0 || begun()) {
    return absl::InvalidArgumentError(
        "shards were announced in blocks that they do not have, twice, or after pieces of them");
  }
  placed_ = true;
  for (Shard& shard : shards_) shard.placed = shard.lent.Return();
  incoming_ = IncomingShard(bytes_ - lent_bytes_);
  return absl::OkStatus();
}

absl::Status IncomingBatch::Take(const ShardPiece& piece, std::string_view bytes,
                                 const Charge& charge) {
  if (placed_ && lent_ == shards_.size())
    return absl::InvalidArgumentError("bytes of shards that all have a block, which are complete");
  const bool first = !incoming_.begun();
  GANGWAY_RETURN_IF_ERROR(incoming_.Take(piece));
  if (first) GANGWAY_RETURN_IF_ERROR(Begin(charge));
  Store(bytes);
  return absl::OkStatus();
}

// Takes the memory of all that comes over the link.
absl::Status IncomingBatch::Begin(const Charge& charge) {
  GANGWAY_RETURN_IF_ERROR(charge(incoming_.size()));
  for (Shard& shard : shards_) {
    (void)shard.lent.Return();
    if (shard.placed != nullptr || shard.bytes.Reserve(shard.size)) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the system has no memory for the ", shard.size, " bytes of a shard"));
  }
  return absl::OkStatus();
}

void IncomingBatch::Store(std::string_view bytes) {
  while (!bytes.empty() && next_ < shards_.size()) {
    Shard& shard = shards_[next_];
    const size_t missing = shard.placed != nullptr ? 0 : shard.size - shard.bytes.size();
    const size_t size = std::min(missing, bytes.size());
    (void)shard.bytes.Append(bytes.substr(0, size));  // its memory is reserved
    bytes.remove_prefix(size);
    if (size == missing) ++next_;
  }
}

bool IncomingBatch::complete() const {
  return incoming_.complete() || (placed_ && lent_ == shards_.size());
}

std::vector<IncomingBatch::Bytes> IncomingBatch::TakeBytes() {
  std::vector<Bytes> all;
  all.reserve(shards_.size());
  for (Shard& shard : shards_) {
    if (shard.placed != nullptr) {
      const std::span<const std::byte> bytes = shard.placed->bytes().first(shard.size);
      all.push_back({bytes, std::move(shard.placed)});
      continue;
    }
    auto owner = std::make_shared<AlignedBytes>(std::move(shard.bytes));
    all.push_back({owner->span(), owner});
  }
  return all;
}

}  // namespace gangway::transport
