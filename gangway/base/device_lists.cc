// Implementation of device_lists.h.
#include "gangway/base/device_lists.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

#include "gangway/base/check.h"

namespace gangway {
namespace {

// Clients choose the lists, so the hash is seeded by the process.
template <typename Devices, typename Number>
struct Hashed {
  const Devices& devices;
  Number number;

  template <typename H>
  friend H AbslHashValue(H hash, const Hashed& hashed) {
    for (const auto& device : hashed.devices)
      hash = H::combine(std::move(hash), hashed.number(device));
    return H::combine(std::move(hash), hashed.devices.size());
  }
};

}  // namespace

void DeviceTopology::AddWorker(uint32_t island, uint32_t index, std::span<const uint32_t> devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    devices_[DeviceId(devices[i])] = {.island = island,
                                      .worker = index,
                                      .local = static_cast<uint32_t>(i),
                                      .worker_number = worker_count_};
  }
  ++worker_count_;
}

const DeviceLocation* DeviceTopology::Find(DeviceId device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : &found->second;
}

DeviceList::DeviceList(const DeviceTopology& topology, std::span<const uint32_t> devices)
    : devices_(devices.begin(), devices.end()), sorted_(devices_) {
  std::sort(sorted_.begin(), sorted_.end());
  absl::flat_hash_map<size_t, size_t> index_of;  // in workers_, by number
  absl::flat_hash_set<uint32_t> islands;
  for (uint32_t position = 0; position < devices_.size(); ++position) {
    const DeviceLocation& location = *topology.Find(devices_[position]);
    const auto [index, is_new] = index_of.emplace(location.worker_number, workers_.size());
    if (is_new) {
      workers_.push_back(
          {.worker_number = location.worker_number, .island = location.island, .ranges = {}});
      if (islands.insert(location.island).second) islands_.push_back(location.island);
    }
    worker_at_.push_back(static_cast<uint32_t>(index->second));
    std::vector<Range>& ranges = workers_[index->second].ranges;
    if (!ranges.empty() && ranges.back().first + ranges.back().count == position) {
      ++ranges.back().count;
    } else {
      ranges.push_back({position, 1});
    }
  }
}

std::optional<uint32_t> DeviceList::OnWorker::PositionFrom(uint32_t from) const {
  const auto range = std::upper_bound(
      ranges.begin(), ranges.end(), from,
      [](uint32_t position, const Range& each) { return position < each.first + each.count; });
  if (range == ranges.end()) return std::nullopt;
  return std::max(from, range->first);
}

size_t DeviceLists::Hash::operator()(Key devices) const {
  return absl::HashOf(Hashed{devices, [](uint32_t device) { return device; }});
}

size_t DeviceLists::Hash::operator()(const DeviceList* list) const {
  return absl::HashOf(Hashed{list->devices(), [](DeviceId device) { return device.number(); }});
}

bool DeviceLists::Equal::operator()(const DeviceList* list, Key devices) const {
  return std::ranges::equal(list->devices(), devices, {}, &DeviceId::number);
}

DeviceLists::DeviceLists(DeviceTopology topology)
    : topology_(std::move(topology)), by_worker_(topology_.worker_count()) {}

DeviceLists::~DeviceLists() { GANGWAY_CHECK(lists_.empty(), "a list outlives its DeviceLists"); }

DeviceListRef DeviceLists::Intern(std::span<const uint32_t> devices) {
  const auto found = lists_.find(devices);
  if (found != lists_.end()) return found->second.lock();
  if (FaultOf(devices)) return nullptr;
  const DeviceListRef list(new DeviceList(topology_, devices), [this](const DeviceList* last) {
    Forget(last);
    delete last;
  });
  lists_.emplace(list.get(), list);
  for (size_t i = 0; i < list->workers().size(); ++i)
    by_worker_[list->workers()[i].worker_number].emplace(list.get(), i);
  return list;
}

std::optional<DeviceLists::Fault> DeviceLists::FaultOf(std::span<const uint32_t> devices) const {
  if (devices.empty()) return Fault{Fault::Kind::kEmpty, {}};
  absl::flat_hash_set<uint32_t> distinct;
  for (const uint32_t device : devices) {
    if (!distinct.insert(device).second) return Fault{Fault::Kind::kRepeated, DeviceId(device)};
    if (topology_.Find(DeviceId(device)) == nullptr)
      return Fault{Fault::Kind::kForeign, DeviceId(device)};
  }
  return std::nullopt;
}

void DeviceLists::Forget(const DeviceList* list) {
  lists_.erase(list);
  for (const DeviceList::OnWorker& worker : list->workers())
    by_worker_[worker.worker_number].erase(list);
}

}  // namespace gangway
