// Which of the arrays that are to be copied become one node: a batch, whose arrays are released, end and fail together.
// So a batch has arrays that go from one list of devices to one other, and come from one node, or from none that has
// not ended: no array waits for another one's producer, and none is spoiled by it (ER-1). An array that waits for
// several nodes, as a view may, goes alone, and one of a type that a device runtime may lack with its like (ER-2).
//
// A batch is bounded, in bytes since all of its memory is admitted at once (GS-2) and it ends once all of its bytes
// have arrived, and in the size of its message. A larger array goes alone.
//
// Pure; not thread-safe. Takes time in proportion to the arrays.
#ifndef GANGWAY_CONTROLLER_CORE_COPY_BATCHES_H_
#define GANGWAY_CONTROLLER_CORE_COPY_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/program_node.h"
#include "gangway/controller/core/storages.h"
#include "gangway/program/array_shape.h"

namespace gangway::controller {

// An array of a copy: what it is and which shards it has, the client's handle for its copy, the number of that among
// the session's nodes, and the node of a program that it is.
struct CopiedArray {
  ArrayShapeRef shape;
  std::vector<Run> runs;
  ArrayHandle result{};
  std::optional<uint64_t> number;  // absent: its client does not count it
  std::optional<ProgramNode> origin{};
};

struct CopyBatch {
  DeviceListRef from;
  DeviceListRef to;
  std::string memory_kind;
  std::vector<CopiedArray> arrays;  // never empty
  uint64_t shard_bytes = 0;         // of one shard of each array
  size_t runs = 0;                  // of shards, in all arrays
};

class CopyBatches {
 public:
  // Small beside the memory of any device, and large beside what a transfer costs.
  static constexpr uint64_t kBytesMax = uint64_t{4} << 20;  // CopyBatch::shard_bytes
  static constexpr size_t kRunsMax = 1024;

  // The nodes that produce an array and have not ended.
  class Producers {
   public:
    void Add(Ordinal producer);  // 0: none

   private:
    friend class CopyBatches;
    Ordinal one_;
    bool several_ = false;
  };
  // What decides which batch an array joins.
  struct Criteria {
    DeviceListRef from;
    DeviceListRef to;
    std::string memory_kind;  // of the result
    uint64_t shard_bytes = 0;
    size_t runs = 0;
    int32_t unusual_type = 0;  // its element type, if not all device runtimes have it
    Producers producers;
  };

  void Add(CopiedArray array, Criteria criteria);

  // In the order of their first arrays. None is left.
  std::vector<CopyBatch> Take() {
    open_.clear();
    return std::exchange(batches_, {});
  }

 private:
  using Key = std::tuple<const DeviceList*, const DeviceList*, std::string, Ordinal, int32_t>;

  std::vector<CopyBatch> batches_;
  absl::flat_hash_map<Key, size_t> open_;  // the batch that takes the next array
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COPY_BATCHES_H_
