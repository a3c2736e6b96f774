// Which arrays travel with their declaration (Put in values.proto), and how many of them may be under way. They are
// small enough that the message costs the controller about what the declaration alone does, and that their bytes delay
// no other message for long. Larger arrays use the workers' data streams.
//
// What is under way is in the queues and in the memory of the processes between a client and a worker. It is counted by
// its cost: the bytes of the shards, and something for each shard, so that empty ones count, too.
#ifndef GANGWAY_WIRE_PUT_LIMITS_H_
#define GANGWAY_WIRE_PUT_LIMITS_H_

#include <cstdint>

namespace gangway::wire {

// Of one array. Each worker of a put gets the shards of all its workers, so they are few.
inline constexpr int kPutShardsMax = 16;
inline constexpr uint64_t kPutArrayBytesMax = uint64_t{16} << 10;  // all shards together

inline constexpr int kPutDimsMax = 8;  // so that what describes an array is about its cost, too
inline constexpr uint64_t kPutShardCost = 64;  // beside its bytes
inline constexpr uint64_t kPutArrayCostMax = kPutArrayBytesMax + kPutShardsMax * kPutShardCost;

// Of one node, and of what a client sends as one operation. Every link takes twice as much in a frame.
inline constexpr uint64_t kPutCostMax = uint64_t{256} << 10;
inline constexpr int kPutArraysMax = 256;

// Of what a session has sent and does not know to have ended. Its client sends further arrays on data streams; the
// controller refuses them, since only a broken client gets there.
inline constexpr uint64_t kPutSessionCostMax = uint64_t{4} << 20;

// Of what a worker was sent, by all sessions, and has not ended: a quarter of what the worker's link may hold. The
// scheduler holds further puts back.
inline constexpr uint64_t kPutWorkerCostMax = uint64_t{64} << 20;

// `shards`: the bytes of each.
template <typename Shards>
uint64_t PutCost(const Shards& shards) {
  uint64_t cost = 0;
  for (const auto& shard : shards) cost += shard.size() + kPutShardCost;
  return cost;
}

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_PUT_LIMITS_H_
