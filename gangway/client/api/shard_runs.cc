// Implementation of shard_runs.h.
#include "gangway/client/api/shard_runs.h"

#include <cstring>

namespace gangway::api {

ShardRuns::ShardRuns(const ShardRange& range, std::span<const int64_t> shape,
                     size_t element_bytes) {
  std::vector<size_t> steps(shape.size());
  size_t bytes = element_bytes;
  shard_bytes_ = element_bytes;
  for (size_t d = shape.size(); d-- > 0;) {
    steps[d] = bytes;
    first_offset_ += static_cast<size_t>(range.offset[d]) * bytes;
    bytes *= static_cast<size_t>(shape[d]);
    shard_bytes_ *= static_cast<size_t>(range.shape[d]);
  }
  // A run takes in the innermost dimensions that are whole in the shard, and the part of the one outside of them.
  size_t outer = shape.size();
  run_bytes_ = element_bytes;
  while (outer > 0) {
    --outer;
    run_bytes_ *= static_cast<size_t>(range.shape[outer]);
    if (range.shape[outer] != shape[outer]) break;
  }
  outer_shape_.assign(range.shape.begin(), range.shape.begin() + static_cast<ptrdiff_t>(outer));
  outer_steps_.assign(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(outer));
  is_one_run_ = run_bytes_ == shard_bytes_;
}

template <typename Copy>
void ShardRuns::ForEach(Copy copy) const {
  if (shard_bytes_ == 0) return;
  std::vector<int64_t> index(outer_shape_.size(), 0);
  size_t in_array = first_offset_;
  for (size_t in_shard = 0; in_shard < shard_bytes_; in_shard += run_bytes_) {
    copy(in_array, in_shard);
    for (size_t d = index.size(); d-- > 0;) {  // the next index, the innermost dimension first
      in_array += outer_steps_[d];
      if (++index[d] < outer_shape_[d]) break;
      in_array -= outer_steps_[d] * static_cast<size_t>(outer_shape_[d]);
      index[d] = 0;
    }
  }
}

void ShardRuns::Gather(std::span<const std::byte> array, std::byte* shard) const {
  ForEach([&](size_t in_array, size_t in_shard) {
    std::memcpy(shard + in_shard, array.data() + in_array, run_bytes_);
  });
}

void ShardRuns::Scatter(const std::byte* shard, std::span<std::byte> array) const {
  ForEach([&](size_t in_array, size_t in_shard) {
    std::memcpy(array.data() + in_array, shard + in_shard, run_bytes_);
  });
}

}  // namespace gangway::api
