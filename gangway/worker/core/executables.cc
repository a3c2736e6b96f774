// Implementation of executables.h.
#include "gangway/worker/core/executables.h"

#include "absl/strings/str_cat.h"

namespace gangway::worker {
namespace {

LoadExecutable MakeLoad(wire::Load& load, const Executable& executable) {
  LoadExecutable action{.executable = ExecutableId(load.executable()),
                        .held = executable.held,
                        .name = load.name(),
                        .serialized = std::move(*load.mutable_serialized()),
                        .has_collectives = load.has_collectives(),
                        .calls_host = load.calls_host(),
                        .session = SessionId(load.session())};
  if (load.has_positions()) action.positions = load.positions();
  for (const LocalPositions::Position& position : executable.positions.local)
    action.devices.push_back(position.device);
  return action;
}

}  // namespace

const Executable* Executables::Find(ExecutableId id) const {
  const auto found = executables_.find(id);
  return found == executables_.end() ? nullptr : &found->second;
}

bool Executables::Load(wire::Load& load, Fleet& fleet, std::vector<Action>& actions) {
  Executable executable{.label = wire::LabelOf(load.name(), load.source()),
                        .positions = fleet.PositionsOf(load.devices())};
  executable.results.assign(load.results().begin(), load.results().end());
  const LocalPositions& positions = executable.positions;
  const bool any = !positions.local.empty(), all = positions.local.size() == positions.count;
  const bool loads = any && (all || load.has_positions());
  if (loads) {
    executable.held = Held<ExecutableSlot>::New();
    LoadExecutable action = MakeLoad(load, executable);
    if (load.has_positions() && load.has_collectives()) {
      executable.has_members = true;
      fleet.BeginEpoch(load.island_epoch());
      action.position_devices = {load.devices().begin(), load.devices().end()};
      action.members = fleet.MembersOn(action.position_devices);
    }
    actions.emplace_back(std::move(action));
  } else if (any) {
    executable.failure =
        worker_.Fail(absl::StatusCode::kUnimplemented,
                     absl::StrCat("Program ", load.name(), " spans ", worker_.name,
                                  " and other workers, but was compiled for one. Use devices of "
                                  "one worker for one jit, and device_put between them."),
                     {}, executable.label);
  }
  executables_[ExecutableId(load.executable())] = std::move(executable);
  return loads;
}

void Executables::FailLoad(ExecutableId id, wire::Failure& failure) {
  const auto found = executables_.find(id);
  if (found == executables_.end()) return;
  if (failure.worker().empty()) failure.set_worker(worker_.name);
  if (failure.incarnation() == 0) failure.set_incarnation(worker_.incarnation.number());
  if (failure.program().empty()) wire::SetProgram(found->second.label, failure);
  found->second.failure = failure;
}

void Executables::Unload(ExecutableId id, std::vector<Action>& actions) {
  const auto unloaded = executables_.extract(id);
  if (!unloaded.empty()) actions.emplace_back(UnloadExecutable{id, unloaded.mapped().held});
}

}  // namespace gangway::worker
