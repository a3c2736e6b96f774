// Where the shards of arrays and the positions of programs are on an island, worked out once for each list of devices:
// equal lists have one Layout, which arrays, executables and nodes share, and whose number names the list in queues.
//
// A layout lives as long as its last user, so no cache grows without one. A new list costs time in proportion to its
// length (and a sort), a known one a hash of it. The cache must outlive every Layout that it has made. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_LAYOUTS_H_
#define GANGWAY_SCHEDULER_CORE_LAYOUTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

struct Layout {
  uint64_t number = 0;        // never used again; 0: of no devices
  std::vector<uint32_t> ids;  // the list: ids may repeat, and may be of other islands
  std::vector<IslandDevice>
      devices;                   // of each shard here, in the order of the shards; each device once
  std::vector<uint32_t> shards;  // their numbers, ascending; empty: 0, 1, 2 ...
  std::vector<IslandDevice> sorted;  // the same devices, ascending
  std::vector<uint32_t> workers;     // that have these devices, in the order of the shards
  bool spans = false;                // devices of other islands are listed too

  // Which of `devices` has the shard; nullopt: it is on another island.
  std::optional<size_t> IndexOf(uint32_t shard) const;
};
using LayoutRef = std::shared_ptr<const Layout>;

class Layouts {
 public:
  explicit Layouts(const Fleet& fleet) : fleet_(fleet) {}
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;

  // The one layout of the list.
  LayoutRef Of(std::span<const uint32_t> ids) const;
  LayoutRef Of(const google::protobuf::RepeatedField<uint32_t>& ids) const {
    return Of(std::span(ids.data(), static_cast<size_t>(ids.size())));
  }
  static const LayoutRef& Empty();

  // How many there are, besides the empty one.
  size_t size() const { return layouts_.size(); }

 private:
  using Key = std::span<const uint32_t>;
  static Key KeyOf(Key ids) { return ids; }
  static Key KeyOf(const Layout* layout) { return layout->ids; }
  struct Hash {
    using is_transparent = void;
    size_t operator()(const auto& each) const {
      const Key ids = KeyOf(each);
      return absl::HashOf(absl::MakeConstSpan(ids.data(), ids.size()));
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const {
      return std::ranges::equal(KeyOf(a), KeyOf(b));
    }
  };

  std::unique_ptr<Layout> Make(Key ids) const;

  const Fleet& fleet_;
  // A cache, so that code that only looks may ask for layouts. Their users own them.
  mutable absl::flat_hash_map<const Layout*, std::weak_ptr<const Layout>, Hash, Equal> layouts_;
  mutable uint64_t latest_ = 0;  // number
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LAYOUTS_H_
