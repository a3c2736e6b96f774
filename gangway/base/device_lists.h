// Ordered lists of devices, interned: equal lists are one object. To compare lists is to compare pointers, arrays and
// executables share a list instead of copying it, and what a list says about islands and workers is worked out once.
//
// A list lives as long as its last user, and DeviceLists longer than all lists. So there are no more lists than users,
// and no cache that would need a limit of its own. A new list costs time in proportion to its length (and a sort), a
// known one a hash of it. Not thread-safe: each core has lists of its own.
#ifndef GANGWAY_BASE_DEVICE_LISTS_H_
#define GANGWAY_BASE_DEVICE_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/base/ids.h"

namespace gangway {

// Where a device is: all are indices.
struct DeviceLocation {
  uint32_t island = 0;
  uint32_t worker = 0;       // in the island
  uint32_t local = 0;        // on the worker
  size_t worker_number = 0;  // of the worker, among all workers of the topology
};

// Which devices exist, and where. Workers are counted in the order in which they are added.
class DeviceTopology {
 public:
  void AddWorker(uint32_t island, uint32_t index, std::span<const uint32_t> devices);
  const DeviceLocation* Find(DeviceId device) const;  // null: no such device
  size_t device_count() const { return devices_.size(); }
  size_t worker_count() const { return worker_count_; }

 private:
  absl::flat_hash_map<DeviceId, DeviceLocation> devices_;
  size_t worker_count_ = 0;
};

class DeviceList {
 public:
  // Consecutive positions of the list.
  struct Range {
    uint32_t first = 0;
    uint32_t count = 0;
    bool operator==(const Range&) const = default;
  };
  // What the list has on one worker.
  struct OnWorker {
    size_t worker_number = 0;  // DeviceLocation::worker_number
    uint32_t island = 0;
    std::vector<Range> ranges;  // in order; they neither touch nor overlap
    // The first position from `from` on that is on this worker.
    std::optional<uint32_t> PositionFrom(uint32_t from) const;
  };

  // Of devices that the topology has, none of them twice. DeviceLists makes all lists.
  DeviceList(const DeviceTopology& topology, std::span<const uint32_t> devices);

  size_t size() const { return devices_.size(); }
  const std::vector<DeviceId>& devices() const { return devices_; }
  const std::vector<DeviceId>& sorted() const { return sorted_; }
  // In the order of the first device that the list has on each.
  const std::vector<uint32_t>& islands() const { return islands_; }
  const std::vector<OnWorker>& workers() const { return workers_; }
  // The index in workers() of the one that has this position.
  uint32_t WorkerAt(uint32_t position) const { return worker_at_[position]; }

 private:
  std::vector<DeviceId> devices_;
  std::vector<DeviceId> sorted_;
  std::vector<uint32_t> islands_;
  std::vector<OnWorker> workers_;
  std::vector<uint32_t> worker_at_;  // by position
};

using DeviceListRef = std::shared_ptr<const DeviceList>;

class DeviceLists {
 public:
  // Why some devices are no list: the first of them that is at fault.
  struct Fault {
    enum class Kind { kEmpty, kRepeated, kForeign } kind = Kind::kEmpty;
    DeviceId device;
  };
  // The lists that have devices on one worker, and the worker's index in DeviceList::workers().
  using ListsOfWorker = absl::flat_hash_map<const DeviceList*, size_t>;

  explicit DeviceLists(DeviceTopology topology);
  ~DeviceLists();
  DeviceLists(const DeviceLists&) = delete;
  DeviceLists& operator=(const DeviceLists&) = delete;

  // The one list of these devices. Null: they are none; FaultOf() says why.
  DeviceListRef Intern(std::span<const uint32_t> devices);
  std::optional<Fault> FaultOf(std::span<const uint32_t> devices) const;

  const DeviceTopology& topology() const { return topology_; }
  const ListsOfWorker& OnWorker(size_t worker_number) const { return by_worker_[worker_number]; }
  size_t size() const { return lists_.size(); }

 private:
  using Key = std::span<const uint32_t>;
  struct Hash {
    using is_transparent = void;
    size_t operator()(Key devices) const;
    size_t operator()(const DeviceList* list) const;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const DeviceList* a, const DeviceList* b) const { return a == b; }
    bool operator()(const DeviceList* list, Key devices) const;
    bool operator()(Key devices, const DeviceList* list) const { return (*this)(list, devices); }
  };
  void Forget(const DeviceList* list);

  const DeviceTopology topology_;
  // By their devices. The users own the lists.
  absl::flat_hash_map<const DeviceList*, std::weak_ptr<const DeviceList>, Hash, Equal> lists_;
  std::vector<ListsOfWorker> by_worker_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_DEVICE_LISTS_H_
