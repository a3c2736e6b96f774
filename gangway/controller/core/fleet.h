// The declared workers and their devices: which are up, which take new work, and the lists of devices that operations
// name. A worker takes no new work once an operator drains it, or once it was told to end. Its earlier work continues,
// and its arrays can be read and copied away.
//
// What an operation or a launch asks here costs per list of devices and per worker that drains, never per device.
// Pure; not thread-safe. Knows no other part of the controller.
#ifndef GANGWAY_CONTROLLER_CORE_FLEET_H_
#define GANGWAY_CONTROLLER_CORE_FLEET_H_

#include <google/protobuf/repeated_field.h>
#include <google/protobuf/repeated_ptr_field.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

inline std::span<const uint32_t> SpanOf(const google::protobuf::RepeatedField<uint32_t>& devices) {
  return {devices.data(), static_cast<size_t>(devices.size())};
}

class Fleet {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Devices = std::span<const uint32_t>;

  struct Worker {
    wire::Worker declared;
    uint64_t process_id = 0;
    bool up = false;
    std::optional<wire::Failure> failure;
    google::protobuf::RepeatedPtrField<wire::StuckDevice> stuck;
    bool drained = false;              // by an operator, until undone
    bool leaving = false;              // this incarnation was told to end
    std::optional<uint64_t> replaced;  // the incarnation that is to make room for the next
    Time replaced_at;
    bool draining() const { return drained || leaving; }
    bool absent() const { return !drained && (!up || leaving); }
  };

  explicit Fleet(const std::vector<wire::Worker>& workers);

  // By the index that DeviceLocation::worker_number names.
  const std::vector<Worker>& workers() const { return workers_; }
  uint32_t island_count() const { return island_count_; }
  const DeviceLists& lists() const { return lists_; }

  // The list of these devices. Null: they are none, and `refused` says why.
  DeviceListRef ListOf(Devices devices, wire::FailureRef& refused);
  // The list of devices that are known to make one.
  DeviceListRef ListOf(Devices devices) { return lists_.Intern(devices); }
  // The islands of devices that the cluster has, in the order of their first device. Devices may repeat.
  std::vector<uint32_t> IslandsOf(Devices devices) const;
  const wire::Worker& WorkerOf(DeviceId device) const;  // of a device that the cluster has
  // Why the devices' workers take no new work. UNAVAILABLE, as for a worker that is down: nothing is lost, and the same
  // call may succeed later or elsewhere.
  wire::FailureRef CheckOpen(const DeviceList& devices) const;

  std::optional<wire::Failure> CheckDrain(const wire::DrainRequest& request) const;
  void OnDrain(const wire::DrainRequest& request);  // that CheckDrain accepts
  void DrainAll() { ending_ = true; }               // the cluster shuts down
  // True: this incarnation takes no new work from now on.
  bool OnLeaving(uint32_t island, const wire::Leaving& leaving);
  // Takes a report, whose failure it clips. The worker's index, if it came up or went down by this.
  std::optional<size_t> OnWorkerState(wire::WorkerState& state);
  // The worker's process, which is down, makes room for the next one: its own reports come too late from here on.
  void NoteReplaced(size_t worker, Time now);

  // Whether one of the workers has not been up since the start.
  bool AwaitsFirstStart() const;
  void FillWorkers(uint32_t island, wire::IslandTerms& terms) const;

 private:
  std::optional<size_t> Find(uint32_t island, uint32_t index) const;
  void NoteDraining();

  uint32_t island_count_ = 0;
  std::vector<Worker> workers_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, size_t> by_name_;  // island and index
  DeviceLists lists_;
  bool any_draining_ = false;
  bool ending_ = false;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_FLEET_H_
