// Construction, the dispatch of events, status.
#include "gangway/controller/core/controller.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/sizes.h"

namespace gangway::controller {

Controller::Controller(ControllerConfig config)
    : config_(std::move(config)),
      compiles_(config_.compiles),
      blame_(config_.blame),
      claims_(config_.isolates, config_.workers.size()),
      compiler_process_ids_(std::max(1u, config_.compiles.compilers)) {
  for (const wire::Worker& worker : config_.workers) {
    islands_.resize(std::max<size_t>(islands_.size(), worker.island() + 1));
    workers_.push_back({.declared = worker});
    for (int i = 0; i < worker.devices_size(); ++i) {
      devices_[DeviceId(worker.devices(i))] = {.island = worker.island(),
                                               .worker = worker.index(),
                                               .local = static_cast<uint32_t>(i),
                                               .owner = workers_.size() - 1};
    }
  }
  for (uint32_t island : config_.remote_islands) {
    if (island >= islands_.size()) continue;
    islands_[island].remote = true;
    islands_[island].up = false;
  }
}

void Controller::Step(Event event, Time now, Actions& actions) {
  CompileActions compiles;
  if (auto* batch = std::get_if<FromClient>(&event)) {
    auto it = sessions_.find(batch->session);
    if (it == sessions_.end()) return;
    for (wire::Op& op : *batch->batch.mutable_ops()) OnOp(it->first, it->second, op, now, actions);
  } else if (auto* reports = std::get_if<FromScheduler>(&event)) {
    for (wire::Report& report : *reports->batch.mutable_reports())
      OnReport(reports->island, report, now, actions);
  } else if (auto* opened = std::get_if<SessionOpened>(&event)) {
    Session& session = sessions_[opened->session];
    session.name = opened->name;
    session.owner = Owner(opened->certificate, opened->session);
    session.wants_ends = opened->wants_ends;
    claims_.Open(session.owner);
  } else if (auto* lost = std::get_if<SessionLost>(&event)) {
    OnSessionLost(lost->session, now, actions);
  } else if (auto* there = std::get_if<SchedulerUp>(&event)) {
    OnSchedulerUp(*there, actions);
  } else if (auto* gone = std::get_if<SchedulerDown>(&event)) {
    OnSchedulerDown(*gone, now, actions);
  } else if (auto* up = std::get_if<CompilerUp>(&event)) {
    compiler_process_ids_[up->compiler] = up->process_id;
    compiles_.OnCompilerUp(up->compiler, now, compiles);
    actions.presence_changed = true;
  } else if (auto* down = std::get_if<CompilerDown>(&event)) {
    compiles_.OnCompilerDown(down->compiler, now, compiles);
    actions.presence_changed = true;
  } else if (auto* result = std::get_if<FromCompiler>(&event)) {
    OnCompileResult(result->compiler, result->result, now, actions);
  } else if (auto* refused = std::get_if<CompileNotSent>(&event)) {
    compiles_.OnNotSent(refused->request, refused->failure, refused->link_ends, now, compiles);
  } else if (auto* drain = std::get_if<Drain>(&event)) {
    OnDrain(drain->request);
  } else if (std::holds_alternative<DrainAll>(event)) {
    ending_ = true;
  }
  compiles_.OnTime(now, compiles);
  Take(compiles, actions);
  OnSchedulerDeadlines(now, actions);
  HoldBack(now, actions);
  ReportProgress(actions);
}

std::optional<Time> Controller::next_deadline() const {
  std::optional<Time> next = compiles_.next_deadline();
  for (const IslandState& island : islands_) {
    if (island.waiting.empty()) continue;  // the lowest ordinal has waited longest
    const Time due = island.waiting.begin()->second + config_.scheduler_wait_max;
    if (!next || due < *next) next = due;
  }
  return next;
}

void Controller::OnSessionLost(SessionId id, Time now, Actions& actions) {
  ended_.Insert(id);  // also one that never opened: without gaps, all are one run
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  for (uint32_t island = 0; island < islands_.size(); ++island) {
    wire::IslandItem item;
    item.mutable_end_session()->set_session(id.number());
    actions.to_islands.emplace_back(island, std::move(item));
  }
  Session& session = it->second;
  std::vector<uint64_t> arrays;
  for (const auto& [handle, array] : session.arrays) arrays.push_back(handle);
  std::sort(arrays.begin(), arrays.end());  // the same order in every run of a simulation
  session.awaits.clear();
  for (uint64_t handle : arrays) Unbind(session, handle, /*consume=*/false, actions);
  wire::DropOp executables;
  for (const auto& [handle, executable] : session.executables) executables.add_handles(handle);
  std::sort(executables.mutable_handles()->begin(), executables.mutable_handles()->end());
  CompileActions compiles;
  compiles_.ForgetSession(id, now, compiles);
  OnDropExecutables(id, session, executables, now, actions);
  progressed_.erase(id);
  const Owner owner = std::move(session.owner);
  sessions_.erase(it);
  Take(compiles, actions);
  EndClaims(id, owner, now, actions);
}

void Controller::FillStatus(Time now, wire::StatusReply& reply) const {
  reply.set_epoch(config_.epoch);
  const bool compiler_up = compiles_.compiler_up(0);
  reply.set_compiler_up(compiler_up);
  reply.set_compiler_process_id(compiler_up ? compiler_process_ids_[0] : 0);
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerInfo& worker = workers_[i];
    wire::WorkerState* state = reply.add_workers()->mutable_state();
    *state->mutable_worker() = worker.declared;
    state->set_up(worker.up);
    state->set_process_id(worker.process_id);
    if (worker.failure) *state->mutable_failure() = *worker.failure;
    *state->mutable_stuck() = worker.stuck;
    state->set_draining(worker.draining());
    FillClaim(i, now, *state);
  }
  for (uint32_t i = 0; i < islands_.size(); ++i) {
    if (!islands_[i].remote) continue;
    auto* scheduler = reply.add_schedulers();
    scheduler->set_island(i);
    scheduler->set_up(islands_[i].up);
    scheduler->set_process_id(islands_[i].up ? islands_[i].process_id : 0);
  }
  absl::flat_hash_map<SessionId, uint64_t> bytes;
  for (const auto& [id, storage] : storages_) {
    if (storage.failure) continue;
    size_t there = storage.devices.size() - storage.holds.gone_count();
    for (uint32_t shard = 0; shard < storage.lost.size(); ++shard)
      there -= storage.lost[shard] && !storage.holds.gone(shard) ? 1 : 0;
    bytes[storage.session] =
        AddSizes(bytes[storage.session], MultiplySizes(storage.shard_bytes, there));
  }
  for (const auto& [id, session] : sessions_) {
    wire::StatusReply::Session* out = reply.add_sessions();
    out->set_session(id.number());
    out->set_name(session.name);
    out->set_arrays(session.arrays.size());
    out->set_bytes(bytes.contains(id) ? bytes.at(id) : 0);
    out->set_executables(session.executables.size());
    out->set_pending_nodes(session.pending);
  }
  (*reply.mutable_counters())["storages"] = storages_.size();
  (*reply.mutable_counters())["nodes"] = nodes_.size();
  uint64_t& compilers = (*reply.mutable_counters())["compilers"];
  for (uint32_t i = 0; i < compiler_process_ids_.size(); ++i)
    compilers += compiles_.compiler_up(i) ? 1 : 0;
  (*reply.mutable_counters())["compiles"] = compiles_.size();
  (*reply.mutable_counters())["compiles_bytes"] = compiles_.program_bytes();
}

}  // namespace gangway::controller
