// Workers that take no new work: drained by an operator, or told to end. Their earlier work
// continues, and their arrays can be read and copied away.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

constexpr size_t kAbsentWorkersNamed = 16;

}  // namespace

std::optional<wire::Failure> Controller::CheckDrain(const wire::DrainRequest& request) const {
  auto meant = [&request](const WorkerInfo& worker) {
    return worker.declared.island() == request.island() &&
           (request.all() || worker.declared.index() == request.index());
  };
  if (std::any_of(workers_.begin(), workers_.end(), meant)) return std::nullopt;
  return wire::MakeFailure(
      absl::StatusCode::kNotFound,
      absl::StrCat("island", request.island(),
                   request.all() ? "" : absl::StrCat("/worker", request.index()),
                   " is not declared; `gangway status` lists the workers"));
}

std::string Controller::AbsentWorkers(const Owner& owner) const {
  std::string absent = AbsentSchedulers();
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerInfo& worker = workers_[i];
    if (!worker.absent() || claims_.Foreign(i, owner) != nullptr) continue;
    absl::StrAppend(&absent, absent.empty() ? "" : ", ", "island", worker.declared.island(),
                    "/worker", worker.declared.index());
  }
  return absent;
}

std::string Controller::AbsentProcesses() const {
  std::string absent = AbsentSchedulers();
  auto add = [&absent](const auto&... parts) {
    absl::StrAppend(&absent, absent.empty() ? "" : ", ", parts...);
  };
  size_t workers = 0;
  for (const WorkerInfo& worker : workers_) {
    if (worker.up || ++workers > kAbsentWorkersNamed) continue;
    add("island", worker.declared.island(), "/worker", worker.declared.index());
  }
  if (workers > kAbsentWorkersNamed) add(workers - kAbsentWorkersNamed, " more workers");
  if (!compiles_.compiler_up(0)) add("the compiler");
  return absent;
}

bool Controller::AwaitsFirstStart() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const WorkerInfo& worker) {
    return worker.absent() && worker.declared.incarnation() == 0;
  });
}

void Controller::OnDrain(const wire::DrainRequest& request) {
  for (WorkerInfo& worker : workers_) {
    if (worker.declared.island() != request.island()) continue;
    if (!request.all() && worker.declared.index() != request.index()) continue;
    worker.drained = !request.undo();
  }
}

// The answer follows all items sent to the worker: it tells the worker that it has all its work.
void Controller::OnLeaving(uint32_t island, const wire::Leaving& leaving, Actions& actions) {
  for (WorkerInfo& worker : workers_) {
    if (worker.declared.island() != island || worker.declared.index() != leaving.index()) continue;
    if (!worker.up || worker.declared.incarnation() != leaving.incarnation()) continue;
    worker.leaving = true;
    wire::IslandItem item;
    *item.mutable_leave() = leaving;
    actions.to_islands.emplace_back(island, std::move(item));
  }
}

// UNAVAILABLE, as for a worker that is down: nothing is lost, and the same call may succeed later
// or elsewhere.
wire::FailureRef Controller::Refusal(DeviceId device) const {
  if (ending_) {
    return wire::Share(wire::MakeFailure(absl::StatusCode::kUnavailable,
                                         "the cluster is shutting down: it takes no new work",
                                         "Start the script again once the cluster is up."));
  }
  auto it = devices_.find(device);
  if (it == devices_.end()) return nullptr;
  const WorkerInfo& owner = workers_[it->second.owner];
  if (!owner.draining()) return nullptr;
  const std::string name =
      absl::StrCat("island", owner.declared.island(), "/worker", owner.declared.index());
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat(name, owner.drained ? " is being drained" : " was told to end",
                   ": it takes no new work, so no array can be created on device ", device),
      "Its arrays can still be read, and copied to devices of other workers. A script that starts "
      "now sees only the other workers.");
  failure.set_worker(name);
  failure.set_incarnation(owner.declared.incarnation());
  failure.set_device(static_cast<int32_t>(device.number()) + 1);
  return wire::Share(std::move(failure));
}

wire::FailureRef Controller::CheckOpen(
    const google::protobuf::RepeatedField<uint32_t>& devices) const {
  for (uint32_t device : devices) {
    if (auto failure = Refusal(DeviceId(device))) return failure;
  }
  return nullptr;
}

wire::FailureRef Controller::CheckOpen(const std::vector<DeviceId>& devices) const {
  for (DeviceId device : devices) {
    if (auto failure = Refusal(device)) return failure;
  }
  return nullptr;
}

}  // namespace gangway::controller
