// Implementation of executables.h.
#include "gangway/scheduler/core/executables.h"

#include <utility>

namespace gangway::scheduler {
namespace {

constexpr std::chrono::seconds kLoadAgainAfter{1};  // an executable that failed to load

}  // namespace

Executables::Executables(const Fleet& fleet, const Layouts& layouts, Introductions& introductions,
                         Outbox& outbox)
    : fleet_(fleet),
      layouts_(layouts),
      introductions_(introductions),
      outbox_(outbox),
      by_worker_(fleet.worker_count()) {}

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
  if (executable.has_members() && introduced_[executable.layout->number]++ == 0)
    introductions_.Introduce(executable.layout->workers, executable.layout->workers);
  SendLoad(executable, executable.layout->workers);
}

void Executables::SendLoad(const Executable& executable, const std::vector<uint32_t>& workers) {
  wire::IslandItem item;
  *item.mutable_load() = executable.load;
  if (executable.has_members()) item.mutable_load()->set_island_epoch(fleet_.epoch());
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
  if (item.has_unload()) outbox_.SendToAll(std::move(item));
}

void Executables::Erase(ExecutableId id) {
  load_failures_.erase(id);
  auto found = executables_.find(id);
  if (found == executables_.end()) return;
  const Layout& layout = *found->second.layout;
  for (uint32_t worker : layout.workers) by_worker_[worker].erase(id);
  if (found->second.has_members() && --introduced_.at(layout.number) == 0)
    introduced_.erase(layout.number);
  executables_.erase(found);
}

void Executables::LoadAllOn(uint32_t worker) {
  std::set<uint64_t> seen;  // layouts: most programs are on one of a few
  for (ExecutableId id : by_worker_[worker]) {
    load_failures_.erase(id);
    const Executable& executable = executables_.at(id);
    if (executable.has_members() && seen.insert(executable.layout->number).second) {
      introductions_.Introduce(executable.layout->workers, {worker});
      introductions_.Introduce({worker}, executable.layout->workers);
    }
    SendLoad(executable, {worker});
  }
}

}  // namespace gangway::scheduler
