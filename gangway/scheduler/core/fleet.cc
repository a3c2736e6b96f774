// Implementation of fleet.h.
#include "gangway/scheduler/core/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace gangway::scheduler {

Fleet::Fleet(uint32_t island, const std::vector<WorkerSpec>& workers)
    : island_(island), workers_(workers.size()) {
  for (uint32_t worker = 0; worker < workers.size(); ++worker) {
    workers_[worker].devices = workers[worker].devices;
    workers_[worker].latest = workers[worker].last_incarnation;
    workers_[worker].first_device = IslandDevice(static_cast<uint32_t>(devices_.size()));
    for (DeviceId id : workers[worker].devices) {
      index_[id] = IslandDevice(static_cast<uint32_t>(devices_.size()));
      devices_.push_back({.worker = worker, .id = id});
    }
  }
}

std::optional<IslandDevice> Fleet::Find(DeviceId id) const {
  auto it = index_.find(id);
  return it == index_.end() ? std::nullopt : std::optional<IslandDevice>(it->second);
}

std::optional<IslandDevice> Fleet::DeviceOf(uint32_t worker, uint32_t index) const {
  if (worker >= workers_.size() || index >= workers_[worker].devices.size()) return std::nullopt;
  return IslandDevice(workers_[worker].first_device.number() + index);
}

uint32_t Fleet::IndexOnWorker(IslandDevice device) const {
  return device.number() - workers_[WorkerOf(device)].first_device.number();
}

std::vector<uint32_t> Fleet::WorkersOf(const std::vector<IslandDevice>& devices) const {
  std::vector<uint32_t> workers;
  std::vector<bool> seen(workers_.size());
  for (IslandDevice device : devices) {
    const uint32_t worker = WorkerOf(device);
    if (seen[worker]) continue;
    seen[worker] = true;
    workers.push_back(worker);
  }
  return workers;
}

std::string Fleet::NameOf(uint32_t worker) const {
  return absl::StrCat("island", island_, "/worker", worker);
}

std::optional<uint32_t> Fleet::FindName(std::string_view name) const {
  uint32_t index = 0;
  absl::string_view left(name.data(), name.size());
  const bool is_one = absl::ConsumePrefix(&left, absl::StrCat("island", island_, "/worker")) &&
                      absl::SimpleAtoi(left, &index) && index < workers_.size();
  return is_one ? std::optional<uint32_t>(index) : std::nullopt;
}

bool Fleet::IsUp(uint32_t worker, Incarnation incarnation) const {
  return worker < workers_.size() && IsUp(worker) && workers_[worker].incarnation == incarnation;
}

void Fleet::Start(const wire::WorkerRegistration& registration, uint64_t process_id) {
  ++epoch_;
  Worker& worker = workers_[registration.index()];
  worker.incarnation = Incarnation(registration.incarnation());
  worker.before_latest = std::exchange(worker.latest, worker.incarnation);
  worker.registration = registration;
  worker.process_id = process_id;
  worker.data_bytes.Clear();
  worker.stuck.clear();
  worker.told_to_end_for.reset();
}

void Fleet::Stop(uint32_t worker) {
  ++epoch_;
  workers_[worker].incarnation = {};
  workers_[worker].stuck.clear();
}

wire::Worker Fleet::Describe(uint32_t index) const {
  const Worker& worker = workers_[index];
  wire::Worker described;
  described.set_island(island_);
  described.set_index(index);
  described.set_incarnation(worker.incarnation.number());
  described.set_device_kind(worker.registration.device_kind());
  described.set_platform(worker.registration.platform());
  described.set_platform_version(worker.registration.platform_version());
  *described.mutable_attributes() = worker.registration.attributes();
  *described.mutable_device_attributes() = worker.registration.device_attributes();
  described.set_data_address(worker.registration.data_address());
  for (DeviceId id : worker.devices) described.add_devices(id.number());
  return described;
}

wire::Worker Fleet::DescribeToWorkers(uint32_t index) const {
  const Worker& worker = workers_[index];
  wire::Worker described;
  described.set_island(island_);
  described.set_index(index);
  described.set_incarnation(worker.incarnation.number());
  described.set_island_epoch(epoch_);
  described.set_data_address(worker.registration.data_address());
  described.set_host(worker.registration.host());
  *described.mutable_collectives() = worker.registration.collectives();
  for (DeviceId id : worker.devices) described.add_devices(id.number());
  return described;
}

wire::Report Fleet::ReportUp(uint32_t worker) const {
  wire::Report report;
  wire::WorkerState* state = report.mutable_worker_state();
  state->set_up(true);
  state->set_process_id(workers_[worker].process_id);
  *state->mutable_worker() = Describe(worker);
  for (const Stuck& each : workers_[worker].stuck) {
    wire::StuckDevice& stuck = *state->add_stuck();
    stuck.set_device(each.device.number());
    stuck.set_gang(each.gang.number());
  }
  return report;
}

bool Fleet::MayGetBytes(const wire::Destination& to) const {
  const Worker& worker = workers_[to.index()];
  const bool up = worker.incarnation != Incarnation();
  // The next incarnation of a worker that is down may still get the bytes: the upload waits.
  const Incarnation expected = !to.next() ? worker.incarnation
                               : up       ? worker.before_latest
                                          : worker.latest;
  return (up || to.next()) && Incarnation(to.incarnation()) == expected;
}

const Fleet::Stuck* Fleet::FindStuck(IslandDevice device) const {
  for (const Stuck& stuck : workers_[WorkerOf(device)].stuck)
    if (stuck.device == IdOf(device)) return &stuck;
  return nullptr;
}

std::vector<Fleet::Stuck> Fleet::SetStuck(uint32_t worker, std::vector<Stuck> stuck) {
  return std::exchange(workers_[worker].stuck, std::move(stuck));
}

void Fleet::EndSession(SessionId session) {
  for (Worker& worker : workers_) worker.admitted.erase(session);
}

bool Fleet::NoteToldToEnd(uint32_t worker, Ordinal gang) {
  if (workers_[worker].told_to_end_for) return false;
  workers_[worker].told_to_end_for = gang;
  return true;
}

}  // namespace gangway::scheduler
