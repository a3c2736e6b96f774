// PJRT_Device_MemoryStats: the memory of a device as its island's scheduler counts it.
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/outcome.h"
#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/error.h"
#include "gangway/frontdoor/pjrt/event.h"

namespace gangway::pjrt {

absl::Status DeviceMemoryStats(PJRT_Device_MemoryStats_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.device, "the device"));
  Client* const client = args.device->client->session.get();
  auto done = std::make_shared<Outcome>(client);
  auto devices = std::make_shared<std::vector<DeviceMemory>>();
  client->Usage([done, devices](const Result<std::vector<DeviceMemory>>& usage) {
    if (usage.ok()) *devices = *usage;
    done->Set(usage.status());
  });
  GANGWAY_RETURN_IF_ERROR(WaitFor(*done));
  const int id = args.device->description.id;
  const auto device = std::find_if(
      devices->begin(), devices->end(),
      [id](const DeviceMemory& each) { return each.device == static_cast<uint32_t>(id); });
  if (device == devices->end()) {
    return absl::UnavailableError(absl::StrCat("the scheduler of ", args.device->description.text,
                                               " did not say in time what is in use"));
  }
  args.bytes_in_use = static_cast<int64_t>(device->bytes);
  args.peak_bytes_in_use = static_cast<int64_t>(device->peak_bytes);
  args.peak_bytes_in_use_is_set = true;
  args.bytes_limit = static_cast<int64_t>(device->limit_bytes);
  args.bytes_limit_is_set = device->limit_bytes > 0;
  // All that there is may be reserved, and nothing is.
  args.bytes_reservable_limit = args.bytes_limit;
  args.bytes_reservable_limit_is_set = args.bytes_limit_is_set;
  args.bytes_reserved = args.peak_bytes_reserved = 0;
  args.bytes_reserved_is_set = args.peak_bytes_reserved_is_set = true;
  args.num_allocs_is_set = args.largest_alloc_size_is_set = false;
  args.largest_free_block_bytes_is_set = args.pool_bytes_is_set = false;
  args.peak_pool_bytes_is_set = false;
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
