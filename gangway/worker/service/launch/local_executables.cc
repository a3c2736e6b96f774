// Implementation of local_executables.h.
#include "gangway/worker/service/launch/local_executables.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/device/pjrt/serialized_loops.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

constexpr size_t kNamedCollectivesMax = 256;  // of one program

// The plan of an executable for one position that has collectives; else null. Leaves the runtime's own part of it.
absl::StatusOr<std::shared_ptr<const collective::Plan>> TakePlan(LoadExecutable& action) {
  if (!action.positions) return std::shared_ptr<const collective::Plan>();
  GANGWAY_ASSIGN_OR_RETURN(collective::Unpacked unpacked,
                           collective::Unpack(action.serialized, action.position_devices.size()));
  action.serialized = std::move(unpacked.executable);
  return std::move(unpacked.plan);
}

// A program that the runtime runs inside the call, and that waits for nothing. A loop may run for any time, as its data
// say.
bool MayRunOnLoop(const LoadExecutable& load, const device::Capabilities& runtime) {
  return runtime.executes_inline && !runtime.execute_waits_for_arguments && !load.has_collectives &&
         !load.calls_host && !device::MayVaryInTime(load.serialized);
}

// For traces.
void NameCollectives(ExecutableId executable, const collective::Plan& plan) {
  for (uint32_t i = 0; i < std::min(plan.size(), kNamedCollectivesMax); ++i) {
    size_t bytes = 0;
    for (const size_t operand : plan.at(i).operand_bytes) bytes += operand;
    NameTrace(TraceNameOf::kCollective, CollectiveNameId(executable, i),
              absl::StrCat(bytes, " bytes, ", plan.at(i).Name()));
  }
}

}  // namespace

LocalExecutables::LocalExecutables(Options options)
    : backend_(options.backend),
      peers_(options.peers),
      on_loaded_(std::move(options.on_loaded)),
      own_loader_(options.loader == nullptr ? std::make_unique<EventLoop>("loader") : nullptr),
      loader_(options.loader == nullptr ? own_loader_.get() : options.loader) {}

void LocalExecutables::Load(LoadExecutable& action) {
  const bool alone = action.has_collectives && backend_->capabilities().collectives.block_threads;
  auto plan = TakePlan(action);
  // A lack of memory is a failure of the load: launches are refused by name, and a later one loads again.
  if (plan.ok() && *plan != nullptr)
    if (absl::Status begun = peers_->Begin(); !begun.ok()) plan = begun;
  if (plan.ok() && *plan != nullptr) NameCollectives(action.executable, **plan);
  for (const WorkerRef& member : action.members) peers_->AddMember(*member);
  auto slot = std::make_shared<ExecutableSlot>(ExecutableSlot::Traits{
      .name = action.name,
      .turn = alone ? DeviceThread::Turn::kGangAlone : DeviceThread::Turn::kGang,
      .has_collectives = action.has_collectives,
      .host_caller = action.calls_host ? action.session : SessionId(),
      .asks = device::MayAskPosition(action.serialized) ? action.positions : std::nullopt,
      .plan = plan.ok() ? *plan : nullptr,
      .position_devices = std::move(action.position_devices),
      .may_run_on_loop = MayRunOnLoop(action, backend_->capabilities())});
  action.held.Set(slot);
  peers_of_.erase(action.executable);
  loader_->Post([this, slot, failed = plan.status(), action = std::move(action)] {
    auto executable = failed.ok() ? backend_->Load(action.serialized, action.devices)
                                  : absl::StatusOr<std::unique_ptr<device::Executable>>(failed);
    std::optional<wire::Failure> failure;
    if (!executable.ok()) failure = wire::ToFailure(executable.status());
    slot->Set(std::move(executable));
    on_loaded_({action.executable, std::move(failure)});
  });
}

void LocalExecutables::Unload(const UnloadExecutable& action) {
  peers_of_.erase(action.executable);
  loader_->Post([slot = action.held.Take()] {});  // freed on the loader's thread
}

void LocalExecutables::UpdatePeer(const wire::Worker& worker) {
  const uint64_t before = peers_->version();
  peers_->UpdateMember(worker);
  // They hold the memory of members that are gone.
  if (peers_->version() != before) peers_of_.clear();
}

GangCollectives::Parts LocalExecutables::CollectivesOf(const PrepareLaunch& launch) {
  GangCollectives::Parts collectives;
  const std::shared_ptr<ExecutableSlot> executable = launch.held_executable.get();
  if (executable->plan() == nullptr) return collectives;
  LaunchPeers& made = peers_of_[launch.executable];
  if (made.peers == nullptr || made.version != peers_->version()) {
    made.version = peers_->version();
    std::vector<uint32_t> here;
    for (const LaunchPosition& each : launch.positions) here.push_back(each.position);
    made.peers = peers_->PeersOf(executable->position_devices(), executable->plan()->Met(here));
  }
  collectives.peers = made.peers;
  for (const LaunchPosition& each : launch.positions)
    collectives.devices.push_back(peers_->local(each.device));
  return collectives;
}

}  // namespace gangway::worker
