// Implementation of shard_holds.h.
#include "gangway/controller/core/shard_holds.h"

namespace gangway::controller {

void ShardHolds::Hold(ShardRange range) {
  if (IsWhole(range)) {
    ++whole_;
    return;
  }
  if (parts_.empty()) parts_.resize(shard_count_);
  for (uint32_t i = 0; i < range.count; ++i) ++parts_[range.first + i];
  partial_ += range.count;
}

void ShardHolds::LetGo(ShardRange range, std::vector<ShardRange>& freed) {
  if (range.count == 0) return;
  if (!IsWhole(range)) {
    partial_ -= range.count;
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint32_t shard = range.first + i;
      if (--parts_[shard] == 0 && whole_ == 0) Lose(shard, freed);
    }
    return;
  }
  if (--whole_ != 0) return;
  if (partial_ == 0) return LoseAll(freed);
  for (uint32_t shard = 0; shard < shard_count_; ++shard) {
    if (parts_[shard] == 0) Lose(shard, freed);
  }
}

void ShardHolds::Take(ShardRange range, std::vector<ShardRange>& freed) {
  if (IsWhole(range)) return LoseAll(freed);
  for (uint32_t i = 0; i < range.count; ++i) Lose(range.first + i, freed);
}

bool ShardHolds::any_gone(ShardRange range) const {
  if (gone_count_ == 0 || range.count == 0) return false;
  for (uint32_t i = 0; i < range.count; ++i) {
    if (gone(range.first + i)) return true;
  }
  return false;
}

void ShardHolds::LoseAll(std::vector<ShardRange>& freed) {
  if (gone_count_ == 0) {
    gone_count_ = shard_count_;
    freed.push_back({0, shard_count_});
    return;
  }
  for (uint32_t shard = 0; shard < shard_count_; ++shard) Lose(shard, freed);
}

void ShardHolds::Lose(uint32_t shard, std::vector<ShardRange>& freed) {
  if (gone(shard)) return;
  if (gone_.empty()) gone_.resize(shard_count_);
  gone_[shard] = true;
  ++gone_count_;
  if (!freed.empty() && freed.back().first + freed.back().count == shard) {
    ++freed.back().count;
  } else {
    freed.push_back({shard, 1});
  }
}

}  // namespace gangway::controller
