// Implementation of copy_batches.h.
#include "gangway/controller/core/copy_batches.h"

namespace gangway::controller {

void CopyBatches::Producers::Add(Ordinal producer) {
  if (producer == Ordinal() || producer == one_) return;
  several_ |= one_ != Ordinal();
  one_ = producer;
}

void CopyBatches::Add(CopiedArray array, Way way) {
  const uint64_t bytes = way.shard_bytes;
  const bool goes_alone = way.producers.several_ || bytes > kBytesMax || way.runs > kRunsMax;
  if (!goes_alone) {
    const auto [open, is_new] = open_.try_emplace(
        {way.from.get(), way.to.get(), way.memory_kind, way.producers.one_, way.unusual_type},
        batches_.size());
    if (!is_new) {
      CopyBatch& batch = batches_[open->second];
      if (batch.shard_bytes + bytes <= kBytesMax && batch.runs + way.runs <= kRunsMax) {
        batch.arrays.push_back(std::move(array));
        batch.shard_bytes += bytes;
        batch.runs += way.runs;
        return;
      }
      open->second = batches_.size();
    }
  }
  CopyBatch& batch = batches_.emplace_back(CopyBatch{.from = std::move(way.from),
                                                     .to = std::move(way.to),
                                                     .memory_kind = std::move(way.memory_kind),
                                                     .arrays = {},
                                                     .shard_bytes = bytes,
                                                     .runs = way.runs});
  batch.arrays.push_back(std::move(array));
}

}  // namespace gangway::controller
