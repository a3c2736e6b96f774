// A shard and its array as bytes: which runs of bytes they have in common, where both are dense and row-major. Pure.
#ifndef GANGWAY_CLIENT_API_SHARD_RUNS_H_
#define GANGWAY_CLIENT_API_SHARD_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "gangway/client/include/gangway/sharding.h"

namespace gangway::api {

class ShardRuns {
 public:
  // `range` is within the array's shape.
  ShardRuns(const ShardRange& range, std::span<const int64_t> shape, size_t element_bytes);

  // The shard is one run of the array, from this offset on.
  bool is_one_run() const { return is_one_run_; }
  size_t first_offset() const { return first_offset_; }
  size_t shard_bytes() const { return shard_bytes_; }

  // Copies the array's bytes into the shard's, or the other way; the spans are of all their bytes.
  void Gather(std::span<const std::byte> array, std::byte* shard) const;
  void Scatter(const std::byte* shard, std::span<std::byte> array) const;

 private:
  // Calls `copy(offset in the array, offset in the shard)` for each run of run_bytes_.
  template <typename Copy>
  void ForEach(Copy copy) const;

  Shape outer_shape_;                // of the shard's dimensions outside of a run
  std::vector<size_t> outer_steps_;  // of these in the array, in bytes
  size_t run_bytes_ = 0;
  size_t shard_bytes_ = 0;
  size_t first_offset_ = 0;
  bool is_one_run_ = false;
};

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_SHARD_RUNS_H_
