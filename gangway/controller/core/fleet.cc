// Implementation of fleet.h.
#include "gangway/controller/core/fleet.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/names.h"

namespace gangway::controller {
namespace {

DeviceTopology TopologyOf(const std::vector<wire::Worker>& workers) {
  DeviceTopology topology;
  for (const wire::Worker& worker : workers)
    topology.AddWorker(worker.island(), worker.index(), SpanOf(worker.devices()));
  return topology;
}

std::string Describe(const DeviceLists::Fault& fault, size_t device_count) {
  using Kind = DeviceLists::Fault::Kind;
  if (fault.kind == Kind::kEmpty) return "the operation names no device";
  if (fault.kind == Kind::kRepeated)  // memory is charged once per device
    return absl::StrCat("the operation names device ", fault.device, " twice");
  return absl::StrCat("device ", fault.device,
                      " is not part of this cluster, which has devices 0 to ", device_count - 1);
}

wire::FailureRef Refuse(const Fleet::Worker& worker, DeviceId device) {
  const std::string name = NameOf(worker.declared);
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat(name, worker.drained ? " is being drained" : " was told to end",
                   ": it takes no new work, so no array can be created on device ", device),
      "Its arrays can still be read, and copied to devices of other workers. A script that starts "
      "now sees only the other workers.");
  failure.set_worker(name);
  failure.set_incarnation(worker.declared.incarnation());
  failure.set_device(device.number());
  return wire::Share(std::move(failure));
}

}  // namespace

Fleet::Fleet(const std::vector<wire::Worker>& workers) : lists_(TopologyOf(workers)) {
  for (const wire::Worker& worker : workers) {
    island_count_ = std::max(island_count_, worker.island() + 1);
    by_name_.emplace(std::pair(worker.island(), worker.index()), workers_.size());
    workers_.push_back({.declared = worker});
  }
}

DeviceListRef Fleet::ListOf(Devices devices, wire::FailureRef& refused) {
  DeviceListRef list = lists_.Intern(devices);
  if (list != nullptr) return list;
  const auto fault = lists_.FaultOf(devices);
  refused = wire::Share(wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                                          Describe(*fault, lists_.topology().device_count())));
  return nullptr;
}

std::vector<uint32_t> Fleet::IslandsOf(Devices devices) const {
  std::vector<uint32_t> islands;
  std::vector<bool> seen(island_count_);
  for (const uint32_t device : devices) {
    const DeviceLocation* location = lists_.topology().Find(DeviceId(device));
    if (location == nullptr || seen[location->island]) continue;
    seen[location->island] = true;
    islands.push_back(location->island);
  }
  return islands;
}

const wire::Worker& Fleet::WorkerOf(DeviceId device) const {
  return workers_[lists_.topology().Find(device)->worker_number].declared;
}

wire::FailureRef Fleet::CheckOpen(const DeviceList& devices) const {
  if (ending_) {
    return wire::Share(wire::MakeFailure(absl::StatusCode::kUnavailable,
                                         "the cluster is shutting down: it takes no new work",
                                         "Start the script again once the cluster is up."));
  }
  if (!any_draining_) return nullptr;
  for (const DeviceList::OnWorker& part : devices.workers()) {
    const Worker& worker = workers_[part.worker_number];
    if (worker.draining()) return Refuse(worker, devices.devices()[part.ranges[0].first]);
  }
  return nullptr;
}

std::optional<wire::Failure> Fleet::CheckDrain(const wire::DrainRequest& request) const {
  const bool is_known =
      request.all() ? std::ranges::any_of(workers_,
                                          [&request](const Worker& worker) {
                                            return worker.declared.island() == request.island();
                                          })
                    : Find(request.island(), request.index()).has_value();
  if (is_known) return std::nullopt;
  return wire::MakeFailure(
      absl::StatusCode::kNotFound,
      absl::StrCat("island", request.island(),
                   request.all() ? "" : absl::StrCat("/worker", request.index()),
                   " is not declared; `gangway status` lists the workers"));
}

void Fleet::OnDrain(const wire::DrainRequest& request) {
  for (Worker& worker : workers_) {
    if (worker.declared.island() != request.island()) continue;
    if (!request.all() && worker.declared.index() != request.index()) continue;
    worker.drained = !request.undo();
  }
  NoteDraining();
}

bool Fleet::OnLeaving(uint32_t island, const wire::Leaving& leaving) {
  const std::optional<size_t> index = Find(island, leaving.index());
  if (!index) return false;
  Worker& worker = workers_[*index];
  if (!worker.up || worker.declared.incarnation() != leaving.incarnation()) return false;
  worker.leaving = true;
  NoteDraining();
  return true;
}

std::optional<size_t> Fleet::OnWorkerState(wire::WorkerState& state) {
  const std::optional<size_t> index = Find(state.worker().island(), state.worker().index());
  if (!index) return std::nullopt;
  Worker& worker = workers_[*index];
  worker.stuck.Swap(state.mutable_stuck());
  const uint64_t incarnation = state.worker().incarnation();
  if (worker.up && state.up() && worker.declared.incarnation() == incarnation) return std::nullopt;
  if (worker.replaced == incarnation) return std::nullopt;  // done with, and all have been told
  worker.up = state.up();
  worker.leaving = false;
  NoteDraining();
  worker.failure.reset();
  if (state.has_failure()) wire::Clip(*state.mutable_failure());
  if (state.has_failure()) worker.failure = state.failure();
  if (!state.up()) return index;
  worker.replaced.reset();
  worker.process_id = state.process_id();
  worker.declared.set_incarnation(incarnation);
  worker.declared.set_data_address(state.worker().data_address());
  worker.declared.set_platform(state.worker().platform());
  worker.declared.set_platform_version(state.worker().platform_version());
  *worker.declared.mutable_attributes() = state.worker().attributes();
  *worker.declared.mutable_device_attributes() = state.worker().device_attributes();
  worker.declared.set_device_kind(state.worker().device_kind());
  return index;
}

void Fleet::NoteReplaced(size_t index, Time now) {
  workers_[index].replaced = workers_[index].declared.incarnation();
  workers_[index].replaced_at = now;
}

bool Fleet::AwaitsFirstStart() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) {
    return worker.absent() && worker.declared.incarnation() == 0;
  });
}

void Fleet::FillWorkers(uint32_t island, wire::IslandTerms& terms) const {
  for (const Worker& worker : workers_)
    if (worker.declared.island() == island) *terms.add_workers() = worker.declared;
}

std::optional<size_t> Fleet::Find(uint32_t island, uint32_t index) const {
  const auto found = by_name_.find(std::pair(island, index));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

void Fleet::NoteDraining() { any_draining_ = std::ranges::any_of(workers_, &Worker::draining); }

}  // namespace gangway::controller
