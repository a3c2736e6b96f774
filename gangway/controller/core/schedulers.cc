// Schedulers in their own processes: they start, and are lost with all arrays of their island.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

std::string SchedulerName(size_t island) { return absl::StrCat("island", island, "/scheduler"); }

// The failure of the node's first spoiled input, if any.
wire::FailureRef SpoiledInput(const wire::Node& node,
                              const std::map<StorageId, wire::FailureRef>& spoiled) {
  wire::FailureRef failure;
  auto look = [&failure, &spoiled](const wire::ArrayRef& ref) {
    for (const wire::ShardRun& run : ref.runs()) {
      auto it = spoiled.find(StorageId(run.storage()));
      if (it != spoiled.end() && !failure) failure = it->second;
    }
  };
  for (const wire::ArrayRef& argument : node.launch().arguments()) look(argument);
  look(node.copy().source());
  look(node.fetch().source());
  return failure;
}

}  // namespace

// The new scheduler knows nothing yet: the loads that it needs come first in `held`.
void Controller::OnSchedulerUp(const SchedulerUp& up, Actions& actions) {
  if (up.island >= islands_.size() || !islands_[up.island].remote) return;
  IslandState& island = islands_[up.island];
  island.up = true;
  actions.presence_changed = true;
  island.process_id = up.process_id;
  island.waiting.clear();
  for (wire::IslandItem& item : island.held)
    actions.to_islands.emplace_back(up.island, std::move(item));
  island.held.clear();
}

// Its workers end too, and return with new incarnations.
void Controller::OnSchedulerDown(const SchedulerDown& down, Time now, Actions& actions) {
  if (down.island >= islands_.size() || !islands_[down.island].up ||
      !islands_[down.island].remote) {
    return;
  }
  IslandState& island = islands_[down.island];
  island.up = false;
  actions.presence_changed = true;
  for (const auto& [id, load] : island.loads) *island.held.emplace_back().mutable_load() = load;
  AdmitAgain(down.island);
  wire::Failure lost = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat(SchedulerName(down.island), ", which ordered all work of its island, ",
                   "is gone (", down.why, "), and the island's arrays with it"),
      "Make the array again, from a checkpoint if need be; the scheduler and its workers are "
      "restarted by their supervisor.");
  FailIsland(down.island, lost, now, actions);
}

void Controller::FailIsland(uint32_t island, const wire::Failure& failure, Time now,
                            Actions& actions) {
  for (const WorkerInfo& worker : workers_) {  // before the node ends that this causes
    if (worker.declared.island() != island || !worker.up) continue;
    wire::WorkerState state;
    *state.mutable_worker() = worker.declared;
    *state.mutable_failure() = failure;
    state.mutable_failure()->set_worker(
        absl::StrCat("island", island, "/worker", worker.declared.index()));
    state.mutable_failure()->set_incarnation(worker.declared.incarnation());
    OnWorkerState(state, now, actions);
  }
  std::vector<Ordinal> open;
  for (const auto& [ordinal, node] : nodes_) {
    const auto& islands = node.open_islands;
    if (std::find(islands.begin(), islands.end(), island) != islands.end()) open.push_back(ordinal);
  }
  std::sort(open.begin(), open.end());  // the same order in every run of a simulation
  for (Ordinal ordinal : open) {
    wire::Done done;
    done.set_ordinal(ordinal.number());
    *done.mutable_failure() = failure;
    done.mutable_failure()->set_gang(ordinal.number());
    done.mutable_failure()->set_worker(SchedulerName(island));
    OnDone(island, done, actions);
  }
}

// Fails nodes that waited too long, and held nodes that read their results: a scheduler that starts
// now would not know these results.
void Controller::OnSchedulerDeadlines(Time now, Actions& actions) {
  for (uint32_t index = 0; index < islands_.size(); ++index) {
    IslandState& island = islands_[index];
    const auto late = [this, now](Time since) { return now >= since + config_.scheduler_wait_max; };
    if (island.waiting.empty() || !late(island.waiting.begin()->second)) continue;
    const wire::Failure failure = wire::MakeFailure(
        absl::StatusCode::kDeadlineExceeded,
        absl::StrCat(SchedulerName(index), ", which this needs, has been down for ",
                     config_.scheduler_wait_max.count(), " ms"),
        "See `gangway status`; start the scheduler.");
    std::map<StorageId, wire::FailureRef> spoiled;
    std::deque<wire::IslandItem> kept;
    for (wire::IslandItem& item : std::exchange(island.held, {})) {
      const Ordinal ordinal(item.node().ordinal());
      wire::FailureRef why = SpoiledInput(item.node(), spoiled);
      if (item.has_node() && !why && late(island.waiting.at(ordinal))) {
        wire::Failure late_one = failure;
        late_one.set_gang(ordinal.number());
        late_one.set_worker(SchedulerName(index));
        why = wire::Share(std::move(late_one));
      }
      if (!why) {
        kept.push_back(std::move(item));
        continue;
      }
      island.waiting.erase(ordinal);
      auto node = nodes_.find(ordinal);
      if (node == nodes_.end()) continue;
      for (StorageId result : node->second.results) spoiled[result] = why;
      wire::Done done;
      done.set_ordinal(ordinal.number());
      *done.mutable_failure() = *why;
      OnDone(index, done, actions);
    }
    island.held = std::move(kept);
  }
}

// Ends each step: keeps items for islands that are up in `actions`, and holds the others.
void Controller::HoldBack(Time now, Actions& actions) {
  if (config_.remote_islands.empty()) return;
  size_t going = 0;
  for (size_t i = 0; i < actions.to_islands.size(); ++i) {
    auto& [index, item] = actions.to_islands[i];
    IslandState& island = islands_[index];
    if (island.remote) {
      if (item.has_load()) island.loads[ExecutableId(item.load().executable())] = item.load();
      for (uint64_t executable : item.unload().executables())
        island.loads.erase(ExecutableId(executable));
    }
    if (!island.up) {
      if (item.has_node()) island.waiting[Ordinal(item.node().ordinal())] = now;
      island.held.push_back(std::move(item));
      continue;
    }
    if (going != i) actions.to_islands[going] = std::move(actions.to_islands[i]);
    ++going;
  }
  actions.to_islands.resize(going);
}

void Controller::FillTerms(uint32_t island, wire::IslandTerms& terms) const {
  for (const WorkerInfo& worker : workers_) {
    if (worker.declared.island() == island) *terms.add_workers() = worker.declared;
  }
  ended_.AppendTo(*terms.mutable_ended_sessions());
}

std::string Controller::AbsentSchedulers() const {
  std::string absent;
  for (size_t i = 0; i < islands_.size(); ++i) {
    if (!islands_[i].up) absl::StrAppend(&absent, absent.empty() ? "" : ", ", SchedulerName(i));
  }
  return absent;
}

}  // namespace gangway::controller
