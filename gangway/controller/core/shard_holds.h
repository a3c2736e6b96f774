// Which shards of one storage arrays hold, and which shards are gone (OB-1): a shard whose last array let go of it is
// gone, and so is one that was deleted or donated, whatever arrays still hold it. Pure; not thread-safe.
//
// As long as all arrays hold all shards, which is the rule, its size does not depend on their number.
#ifndef GANGWAY_CONTROLLER_CORE_SHARD_HOLDS_H_
#define GANGWAY_CONTROLLER_CORE_SHARD_HOLDS_H_

#include <cstdint>
#include <vector>

namespace gangway::controller {

// Consecutive shards.
struct ShardRange {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const ShardRange&) const = default;
};

class ShardHolds {
 public:
  explicit ShardHolds(uint32_t shard_count) : shard_count_(shard_count) {}

  // The ranges below lie within the shards.

  void Hold(ShardRange range);
  // An array that held the range lets go of it. Appends the shards that are gone by this to `freed`.
  void LetGo(ShardRange range, std::vector<ShardRange>& freed);
  // The shards are deleted or donated. Appends those that were not gone before.
  void Take(ShardRange range, std::vector<ShardRange>& freed);

  bool held() const { return whole_ + partial_ != 0; }  // by any array, gone or not
  bool gone(uint32_t shard) const { return all_gone() || (!gone_.empty() && gone_[shard]); }
  bool any_gone(ShardRange range) const;
  bool all_gone() const { return gone_count_ == shard_count_; }
  uint32_t gone_count() const { return gone_count_; }

 private:
  bool IsWhole(ShardRange range) const { return range.first == 0 && range.count == shard_count_; }
  void Lose(uint32_t shard, std::vector<ShardRange>& freed);
  void LoseAll(std::vector<ShardRange>& freed);

  uint32_t shard_count_ = 0;
  uint64_t whole_ = 0;           // arrays that hold all shards
  uint64_t partial_ = 0;         // the sum of parts_
  std::vector<uint32_t> parts_;  // by shard: other arrays that hold it; empty: none ever did
  std::vector<bool> gone_;       // by shard; empty: none, or all
  uint32_t gone_count_ = 0;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SHARD_HOLDS_H_
