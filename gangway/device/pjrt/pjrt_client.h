// The opened client of a plugin, shared by its Backend, buffers and executables. Internal to
// device/pjrt. Immutable after Open but for the launches, which have a lock; every object made from it references it.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_CLIENT_H_
#define GANGWAY_DEVICE_PJRT_PJRT_CLIENT_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/device/pjrt/launches_in_flight.h"
#include "gangway/device/pjrt/pjrt_api.h"
#include "gangway/device/pjrt/pjrt_backend.h"

namespace gangway::device {

class PjrtClient {
 public:
  static absl::StatusOr<std::shared_ptr<PjrtClient>> Open(const PjrtOptions& options);
  ~PjrtClient();
  PjrtClient(const PjrtClient&) = delete;
  PjrtClient& operator=(const PjrtClient&) = delete;

  const PjrtApi& api() const { return *api_; }
  PJRT_Client* client() const { return client_; }
  const std::shared_ptr<LaunchesInFlight>& launches() const { return launches_; }
  const Capabilities& capabilities() const { return capabilities_; }
  const std::vector<DeviceInfo>& devices() const { return infos_; }

  // INVALID_ARGUMENT: no such local device, or no such memory kind on it (names those that exist).
  absl::StatusOr<PJRT_Device*> Device(int local_index) const;
  absl::StatusOr<PJRT_Memory*> Memory(int local_index, std::string_view kind) const;

 private:
  using Memories = std::vector<std::pair<std::string, PJRT_Memory*>>;

  PjrtClient(const PjrtApi* api, PJRT_Client* client) : api_(api), client_(client) {}
  absl::Status ReadCapabilities();
  void ReadAttributes();
  absl::Status ReadDevices();
  absl::Status ReadDevice(int local_index, PJRT_Device* device);
  uint64_t MemoryLimit(PJRT_Device* device) const;  // 0: unknown
  absl::StatusOr<std::string> MemoryKind(PJRT_Memory* memory) const;

  const PjrtApi* const api_;
  PJRT_Client* const client_;
  Capabilities capabilities_;
  std::vector<DeviceInfo> infos_;
  std::vector<PJRT_Device*> devices_;  // by local index, like memories_; default memory first
  std::vector<Memories> memories_;
  // Shared with the callbacks of launches, which may come later than the end of this object.
  const std::shared_ptr<LaunchesInFlight> launches_ = std::make_shared<LaunchesInFlight>();
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_CLIENT_H_
