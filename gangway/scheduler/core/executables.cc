// Implementation of executables.h.
#include "gangway/scheduler/core/executables.h"

#include <utility>

namespace gangway::scheduler {
namespace {

constexpr std::chrono::seconds kLoadAgainAfter{1};  // an executable that failed to load

}  // namespace

Executables::Executables(const Fleet& fleet, const Layouts& layouts, Outbox& outbox)
    : fleet_(fleet),
      layouts_(layouts),
      outbox_(outbox),
      by_worker_(fleet.worker_count()),
      known_to_(fleet.worker_count()) {}

const Executable* Executables::Find(ExecutableId id) const {
  auto found = executables_.find(id);
  return found == executables_.end() ? nullptr : &found->second;
}

void Executables::Load(const wire::Load& load) {
  const ExecutableId id(load.executable());
  Erase(id);
  Executable& executable = executables_[id];
  executable = {.load = load,
                .label = wire::LabelOf(load.name(), load.source()),
                .client = std::make_shared<const std::string>(load.client()),
                .layout = layouts_.Of(load.devices())};
  for (uint32_t worker : executable.layout->workers) by_worker_[worker].insert(id);
  SendLoad(executable, executable.layout->workers);
}

// With the members of a program whose collectives are Gangway's own.
void Executables::SendLoad(const Executable& executable, const std::vector<uint32_t>& workers) {
  wire::IslandItem item;
  *item.mutable_load() = executable.load;
  if (executable.has_members()) {
    item.mutable_load()->set_island_epoch(fleet_.epoch());
    for (uint32_t member : executable.layout->workers) {
      *item.mutable_load()->add_members() = fleet_.DescribeMember(member);
      known_to_[member].insert(workers.begin(), workers.end());
    }
  }
  outbox_.Send(workers, std::move(item));
}

void Executables::NoteFailure(uint32_t worker, wire::Loaded& loaded, Time now) {
  const ExecutableId id(loaded.executable());
  if (!loaded.has_failure() || !executables_.contains(id)) return;
  wire::Clip(*loaded.mutable_failure());
  LoadFailure& failed = load_failures_[id];
  failed.failure = wire::Share(loaded.failure());
  failed.workers.insert(worker);
  failed.at = now;
}

wire::FailureRef Executables::FailureOf(ExecutableId id) const {
  auto failed = load_failures_.find(id);
  return failed == load_failures_.end() ? nullptr : failed->second.failure;
}

// A load may have failed for want of memory or descriptors, which the next use may find.
void Executables::LoadAgain(ExecutableId id, Time now) {
  auto failed = load_failures_.find(id);
  if (failed == load_failures_.end() || now - failed->second.at < kLoadAgainAfter) return;
  const auto code = static_cast<absl::StatusCode>(failed->second.failure->code());
  if (code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kInvalidArgument)
    return;  // of the executable itself
  SendLoad(executables_.at(id), {failed->second.workers.begin(), failed->second.workers.end()});
  load_failures_.erase(failed);
}

void Executables::NoteUnload(const wire::Unload& unload) {
  for (uint64_t id : unload.executables()) unloading_.emplace(id);
}

// Launches that were sent are ahead of the Unload in the workers' streams.
void Executables::Unload(const std::set<ExecutableId>& needed) {
  wire::IslandItem item;
  std::erase_if(unloading_, [&](ExecutableId id) {
    if (needed.contains(id)) return false;
    Erase(id);
    item.mutable_unload()->add_executables(id.number());
    outbox_.NoteUnloaded(id);
    return true;
  });
  if (item.has_unload()) outbox_.SendToAll(item);
}

void Executables::Erase(ExecutableId id) {
  load_failures_.erase(id);
  auto found = executables_.find(id);
  if (found == executables_.end()) return;
  for (uint32_t worker : found->second.layout->workers) by_worker_[worker].erase(id);
  executables_.erase(found);
}

void Executables::LoadAllOn(uint32_t worker) {
  for (ExecutableId id : by_worker_[worker]) {
    load_failures_.erase(id);
    SendLoad(executables_.at(id), {worker});
  }
}

void Executables::NameMember(uint32_t worker) {
  std::set<uint32_t> others = std::exchange(known_to_[worker], {});
  std::set<uint64_t> seen;  // layouts: most programs are on one of a few
  for (ExecutableId id : by_worker_[worker]) {
    const Executable& executable = executables_.at(id);
    if (!executable.has_members() || !seen.insert(executable.layout->number).second) continue;
    others.insert(executable.layout->workers.begin(), executable.layout->workers.end());
  }
  others.erase(worker);
  if (others.empty()) return;
  wire::IslandItem item;
  *item.mutable_member() = fleet_.DescribeMember(worker);
  if (fleet_.IsUp(worker)) known_to_[worker] = others;
  outbox_.Send({others.begin(), others.end()}, std::move(item));
}

void Executables::Forget(uint32_t worker) {
  for (std::set<uint32_t>& known : known_to_) known.erase(worker);
}

}  // namespace gangway::scheduler
