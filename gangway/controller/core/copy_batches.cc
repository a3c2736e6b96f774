// Implementation of copy_batches.h.
#include "gangway/controller/core/copy_batches.h"

namespace gangway::controller {

void CopyBatches::Producers::Add(Ordinal producer) {
  if (producer == Ordinal() || producer == one_) return;
  several_ |= one_ != Ordinal();
  one_ = producer;
}

void CopyBatches::Add(CopiedArray array, Criteria criteria) {
  const uint64_t bytes = criteria.shard_bytes;
  const bool goes_alone =
      criteria.producers.several_ || bytes > kBytesMax || criteria.runs > kRunsMax;
  if (!goes_alone) {
    const auto [open, is_new] =
        open_.try_emplace({criteria.from.get(), criteria.to.get(), criteria.memory_kind,
                           criteria.producers.one_, criteria.unusual_type},
                          batches_.size());
    if (!is_new) {
      CopyBatch& batch = batches_[open->second];
      if (batch.shard_bytes + bytes <= kBytesMax && batch.runs + criteria.runs <= kRunsMax) {
        batch.arrays.push_back(std::move(array));
        batch.shard_bytes += bytes;
        batch.runs += criteria.runs;
        return;
      }
      open->second = batches_.size();
    }
  }
  CopyBatch& batch = batches_.emplace_back(CopyBatch{.from = std::move(criteria.from),
                                                     .to = std::move(criteria.to),
                                                     .memory_kind = std::move(criteria.memory_kind),
                                                     .arrays = {},
                                                     .shard_bytes = bytes,
                                                     .runs = criteria.runs});
  batch.arrays.push_back(std::move(array));
}

}  // namespace gangway::controller
