// Implementation of copy_route.h.
#include "gangway/controller/core/copy_route.h"

#include "absl/container/flat_hash_set.h"

namespace gangway::controller {

CopyRoute::CopyRoute(const DeviceTopology& topology, const DeviceListRef& from_list,
                     const DeviceListRef& to_list)
    : from(from_list), to(to_list) {
  absl::flat_hash_set<uint32_t> seen, leaving;
  for (const DeviceListRef& list : {to, from}) {
    for (const uint32_t island : list->islands())
      if (seen.insert(island).second) islands.push_back(island);
  }
  if (from == to) return;
  absl::flat_hash_set<size_t> sending;
  for (size_t i = 0; i < from->size(); ++i) {
    const DeviceLocation& source = *topology.Find(from->devices()[i]);
    const DeviceLocation& target = *topology.Find(to->devices()[i]);
    crosses_workers |= source.worker_number != target.worker_number;
    if (source.island == target.island) continue;
    if (leaving.insert(source.island).second) leaving_islands.push_back(source.island);
    if (sending.insert(source.worker_number).second) senders.push_back(source.worker_number);
  }
}

}  // namespace gangway::controller
