// Implementation of gathered_cache.h.
#include "gangway/frontdoor/pjrt/gathered_cache.h"

#include <algorithm>
#include <utility>

#include "gangway/base/ids.h"

namespace gangway::pjrt {
namespace {

constexpr size_t kSeenMax = 16384;

// Never 0. Handles are mostly consecutive numbers, so each is spread over all bits.
uint64_t HashOf(std::span<const ShardOf> shards) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio
  uint64_t hash = shards.size();
  for (const ShardOf& shard : shards) {
    hash = (hash ^ NumberOf(shard.array) ^ (uint64_t{shard.shard} << 40)) * kOdd;
    hash ^= hash >> 32;
  }
  return hash | 1;
}

bool IsSame(std::span<const ShardOf> a, std::span<const ShardOf> b) {
  return std::ranges::equal(a, b, [](const ShardOf& one, const ShardOf& other) {
    return one.array == other.array && one.shard == other.shard;
  });
}

}  // namespace

GatheredCache::GatheredCache(Gather gather, const Limits& limits)
    : gather_(std::move(gather)), limits_(limits) {}

void GatheredCache::Name(std::span<List> lists) {
  if (ForkGeneration() != fork_generation_) return;
  std::vector<GatheredArray> evicted;  // dropped after the lock
  const MutexLock lock(mutex_);
  ++calls_;
  std::vector<std::pair<uint64_t, List*>> made;  // an array that is made may be in several places
  std::vector<uint64_t> added;
  std::vector<std::vector<ShardOf>> gathered;
  for (List& list : lists) {
    const uint64_t hash = HashOf(list.shards);
    if (auto found = entries_.find(hash); found != entries_.end()) {
      Entry& entry = found->second;
      if (!IsSame(entry.shards, list.shards)) continue;  // another list has the same hash
      used_.splice(used_.begin(), used_, entry.used);
      entry.call = calls_;
      list.array = entry.array;
      if (entry.array == nullptr) made.emplace_back(hash, &list);
    } else if (!list.is_donated && IsRepeated(hash) && MakeRoom(list.shards.size(), evicted)) {
      Add(hash, list.shards);
      made.emplace_back(hash, &list);
      added.push_back(hash);
      gathered.emplace_back(list.shards.begin(), list.shards.end());
    }
  }
  if (added.empty()) return;
  std::vector<GatheredArray> arrays = gather_(std::move(gathered));
  for (size_t i = 0; i < added.size(); ++i) entries_.at(added[i]).array = std::move(arrays[i]);
  for (auto& [hash, list] : made) {
    list->array = entries_.at(hash).array;
    list->is_new = true;
  }
}

std::vector<GatheredArray> GatheredCache::Forget(const ShardOf& shard) {
  std::vector<GatheredArray> arrays;
  const MutexLock lock(mutex_);
  for (;;) {
    const auto next = lists_of_.lower_bound({shard.array, shard.shard, 0});
    if (next == lists_of_.end() || std::get<0>(*next) != shard.array ||
        std::get<1>(*next) != shard.shard)
      return arrays;
    arrays.push_back(Remove(entries_.find(std::get<2>(*next))));
  }
}

size_t GatheredCache::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

bool GatheredCache::IsRepeated(uint64_t hash) {
  seen_.resize(kSeenMax);
  return std::exchange(seen_[hash % seen_.size()], hash) == hash;
}

bool GatheredCache::MakeRoom(size_t shards, std::vector<GatheredArray>& evicted) {
  while (entries_.size() >= limits_.lists || shard_count_ + shards > limits_.shards) {
    if (entries_.empty()) return false;
    const auto oldest = entries_.find(used_.back());
    if (calls_ - oldest->second.call < limits_.idle_calls) return false;
    evicted.push_back(Remove(oldest));
  }
  return true;
}

void GatheredCache::Add(uint64_t hash, std::span<const ShardOf> shards) {
  used_.push_front(hash);
  shard_count_ += shards.size();
  for (const ShardOf& shard : shards) lists_of_.emplace(shard.array, shard.shard, hash);
  entries_.emplace(hash, Entry{.shards = {shards.begin(), shards.end()},
                               .array = nullptr,
                               .call = calls_,
                               .used = used_.begin()});
}

GatheredArray GatheredCache::Remove(Entries::iterator entry) {
  const uint64_t hash = entry->first;
  GatheredArray array = std::move(entry->second.array);
  shard_count_ -= entry->second.shards.size();
  for (const ShardOf& shard : entry->second.shards)
    lists_of_.erase({shard.array, shard.shard, hash});
  used_.erase(entry->second.used);
  entries_.erase(entry);
  return array;
}

}  // namespace gangway::pjrt
