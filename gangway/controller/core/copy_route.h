// Which islands and workers the shards of a copy leave and reach, when shard i goes from device i of one list to device
// i of another one of the same length. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_COPY_ROUTE_H_
#define GANGWAY_CONTROLLER_CORE_COPY_ROUTE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gangway/base/device_lists.h"

namespace gangway::controller {

struct CopyRoute {
  CopyRoute(const DeviceTopology& topology, const DeviceListRef& from, const DeviceListRef& to);

  DeviceListRef from;
  DeviceListRef to;
  std::vector<uint32_t> islands;          // those of both lists, of `to` first
  std::vector<uint32_t> leaving_islands;  // those that some shard leaves
  std::vector<size_t>
      senders;  // workers (DeviceLocation::worker_number) that some shard leaves for another island
  bool crosses_workers = false;  // some shard leaves its worker
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COPY_ROUTE_H_
