// Reports from schedulers: node ends, releases that other islands wait for, changes of workers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

// Progress is a hint for flow control, not an answer: few messages suffice (TM-2).
constexpr uint64_t kProgressStep = 256;
constexpr size_t kRangesMax = 256;  // of ended nodes in one event, each with a failure

std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

void Controller::OnReport(uint32_t island, wire::Report& report, Time now, Actions& actions) {
  if (report.has_done()) {
    OnDone(island, *report.mutable_done(), actions);
  } else if (report.has_worker_state()) {
    OnWorkerState(*report.mutable_worker_state(), now, actions);
  } else if (report.has_released()) {
    for (uint64_t number : report.released().ordinals())
      OnReleased(island, Ordinal(number), actions);
  } else if (report.has_leaving()) {
    OnLeaving(island, report.leaving(), actions);
  } else if (report.has_broken_books()) {
    OnBrokenBooks(*report.mutable_broken_books(), now, actions);
  } else if (report.has_ready() || report.has_admitted()) {
    std::vector<Sequencer::Decision> decisions;
    for (uint64_t number : report.ready().ordinals())
      sequencer_.OnReady(Ordinal(number), island, decisions);
    for (uint64_t number : report.admitted().ordinals())
      sequencer_.OnAdmitted(Ordinal(number), island, decisions);
    Follow(decisions, actions);
  }
}

// Only the session whose sums are broken ends; the scheduler or worker has put its bytes right.
void Controller::OnBrokenBooks(wire::BrokenBooks& broken, Time now, Actions& actions) {
  const SessionId id(broken.session());
  if (!sessions_.contains(id)) return;  // it has ended already
  wire::Clip(*broken.mutable_failure());
  wire::SessionEvent event;
  *event.mutable_ended() = broken.failure();
  actions.to_clients.emplace_back(id, std::move(event));
  actions.ended.emplace_back(id, std::move(*broken.mutable_failure()));
  OnSessionLost(id, now, actions);
}

void Controller::Follow(const std::vector<Sequencer::Decision>& decisions, Actions& actions) {
  for (const Sequencer::Decision& decision : decisions) {
    for (uint32_t island : decision.islands) {
      wire::IslandItem item;
      if (decision.release) {
        item.mutable_release()->add_ordinals(decision.ordinal.number());
      } else {
        item.mutable_admit()->add_ordinals(decision.ordinal.number());
      }
      actions.to_islands.emplace_back(island, std::move(item));
    }
  }
}

// Once all source islands have reported Released, the copy's open islands may release their half.
// The message names the worker processes that hold the shards now.
void Controller::OnReleased(uint32_t island, Ordinal ordinal, Actions& actions) {
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end() || std::erase(it->second.unreleased_sources, island) == 0) return;
  if (!it->second.unreleased_sources.empty()) return;
  for (uint32_t open : it->second.open_islands) {
    wire::IslandItem item;
    item.mutable_released()->add_ordinals(ordinal.number());
    for (size_t sender : it->second.senders) {
      if (workers_[sender].up) *item.mutable_released()->add_sources() = workers_[sender].declared;
    }
    actions.to_islands.emplace_back(open, std::move(item));
  }
}

void Controller::OnDone(uint32_t island, wire::Done& done, Actions& actions) {
  const Ordinal ordinal(done.ordinal());
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end()) return;
  Node& node = it->second;
  auto& open = node.open_islands;
  auto position = std::find(open.begin(), open.end(), island);
  if (position == open.end()) return;
  open.erase(position);
  if (done.has_failure()) {
    wire::Clip(*done.mutable_failure());
    SpoilNode(ordinal, node, wire::Share(std::move(*done.mutable_failure())), actions);
  }
  if (open.empty()) EndNode(ordinal, actions);
}

void Controller::SpoilNode(Ordinal ordinal, Node& node, wire::FailureRef failure,
                           Actions& actions) {
  if (node.failure) return;
  node.failure = std::move(failure);
  for (StorageId id : node.results) {  // now: an island that forgets them cannot explain them
    auto storage = storages_.find(id);
    if (storage != storages_.end() && !storage->second.failure)
      storage->second.failure = node.failure;
  }
  std::vector<Sequencer::Decision> decisions;
  sequencer_.Remove(ordinal, decisions);
  Follow(decisions, actions);
  for (uint32_t island : node.open_islands) {  // all or none
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal.number());
    *item.mutable_cancel()->mutable_failure() = *node.failure;
    actions.to_islands.emplace_back(island, std::move(item));
  }
}

void Controller::EndNode(Ordinal ordinal, Actions& actions) {
  auto it = nodes_.find(ordinal);
  Node node = std::move(it->second);
  nodes_.erase(it);
  if (node.launched && !node.failure) blame_.OnGoodRun(*node.launched, node.alone);
  for (StorageId id : node.results) {
    auto storage = storages_.find(id);
    if (storage == storages_.end()) continue;
    storage->second.producer = {};
    if (node.failure && !storage->second.failure) storage->second.failure = node.failure;
    Settle(id, actions);
  }
  auto session = sessions_.find(node.session);
  if (session == sessions_.end()) return;
  --session->second.pending;
  ++session->second.ended;
  if (session->second.wants_ends) session->second.ends.Add(node.number, node.failure);
  if (node.upload != 0) session->second.uploads.erase(node.upload);
  progressed_.insert(node.session);
  if (!node.failure) return;
  wire::SessionEvent event;
  if (node.fetch != 0) {
    event.mutable_fetch_failed()->set_fetch(node.fetch);
    *event.mutable_fetch_failed()->mutable_failure() = *node.failure;
  } else if (node.upload != 0) {
    event.mutable_upload_failed()->set_upload(node.upload);
    *event.mutable_upload_failed()->mutable_failure() = *node.failure;
  } else {
    return;
  }
  actions.to_clients.emplace_back(node.session, std::move(event));
}

void Controller::Settle(StorageId id, Actions& actions) {
  Storage& storage = storages_.at(id);
  std::vector<Waiter> waiters = std::move(storage.waiters);
  storage.waiters.clear();
  std::vector<wire::FailureRef> failures;  // of the waiters: the storage may go
  for (const Waiter& waiter : waiters) failures.push_back(FailureOf(storage, waiter.run));
  if (!storage.holds.held()) storages_.erase(id);
  for (size_t i = 0; i < waiters.size(); ++i) {
    const Waiter& waiter = waiters[i];
    auto session = sessions_.find(waiter.session);
    if (session == sessions_.end()) continue;
    auto found = session->second.awaits.find(waiter.await);
    if (found == session->second.awaits.end()) continue;
    found->second.Note(waiter.index, failures[i]);
    if (--found->second.unsettled == 0)
      FinishAwait(waiter.session, session->second, waiter.await, actions);
  }
}

void Controller::FinishAwait(SessionId session_id, Session& session, uint64_t await,
                             Actions& actions) {
  auto it = session.awaits.find(await);
  wire::SessionEvent event;
  event.mutable_await_done()->set_await(await);
  if (it->second.failure) *event.mutable_await_done()->mutable_failure() = *it->second.failure;
  session.awaits.erase(it);
  actions.to_clients.emplace_back(session_id, std::move(event));
}

void Controller::ReportProgress(Actions& actions) {
  for (SessionId id : progressed_) {
    auto session = sessions_.find(id);
    if (session == sessions_.end()) continue;
    Session& state = session->second;
    if (!state.wants_ends && state.ended - state.ended_reported < kProgressStep) continue;
    state.ended_reported = state.ended;
    do {
      wire::SessionEvent event;
      event.mutable_progress()->set_ended(state.ended);
      state.ends.MoveTo(kRangesMax, *event.mutable_progress());
      actions.to_clients.emplace_back(id, std::move(event));
    } while (!state.ends.empty());
  }
  progressed_.clear();
}

void Controller::OnWorkerState(wire::WorkerState& state, Time now, Actions& actions) {
  auto same = [&state](const WorkerInfo& worker) {
    return worker.declared.island() == state.worker().island() &&
           worker.declared.index() == state.worker().index();
  };
  auto it = std::find_if(workers_.begin(), workers_.end(), same);
  if (it == workers_.end()) return;
  it->stuck.Swap(state.mutable_stuck());
  const uint64_t incarnation = state.worker().incarnation();
  if (it->up && state.up() && it->declared.incarnation() == incarnation) return;
  if (it->replaced == incarnation) return;  // this process is done with, and all have been told
  it->up = state.up();
  actions.presence_changed = true;
  it->leaving = false;
  it->failure.reset();
  if (state.has_failure()) wire::Clip(*state.mutable_failure());
  if (state.has_failure()) it->failure = state.failure();
  if (state.up()) {
    it->replaced.reset();
    it->process_id = state.process_id();
    it->declared.set_incarnation(incarnation);
    it->declared.set_data_address(state.worker().data_address());
    it->declared.set_platform(state.worker().platform());
    it->declared.set_platform_version(state.worker().platform_version());
    *it->declared.mutable_attributes() = state.worker().attributes();
    *it->declared.mutable_device_attributes() = state.worker().device_attributes();
    it->declared.set_device_kind(state.worker().device_kind());
  } else {
    LoseShards(state);
    BlameLaunches(state, now, actions);
    BlameOrphan(state, now, actions);
  }
  state.clear_gangs();  // no client's concern
  state.clear_held_by();
  for (auto& [id, session] : sessions_) {
    wire::SessionEvent event;
    *event.mutable_worker_state() = state;
    actions.to_clients.emplace_back(id, std::move(event));
  }
}

void Controller::BlameLaunches(const wire::WorkerState& lost, Time now, Actions& actions) {
  std::vector<LaunchedProgramRef> launches;
  for (uint64_t gang : lost.gangs()) {
    auto node = nodes_.find(Ordinal(gang));
    if (node != nodes_.end() && node->second.launched) launches.push_back(node->second.launched);
  }
  for (std::string& notice : blame_.OnDeath(NameOf(lost.worker()), launches, now))
    actions.notices.push_back(std::move(notice));
}

// Where no other session was open, it cost nobody anything.
void Controller::BlameOrphan(const wire::WorkerState& lost, Time now, Actions& actions) {
  if (!lost.has_held_by()) return;
  auto node = nodes_.find(Ordinal(lost.held_by()));
  if (node == nodes_.end() || !node->second.launched) return;
  // Once, also where it held devices of several workers.
  const LaunchedProgramRef program = std::exchange(node->second.launched, nullptr);
  const auto is_other = [&](const auto& entry) { return entry.first != program->session; };
  if (std::ranges::none_of(sessions_, is_other)) return;
  actions.notices.push_back(blame_.OnOrphan(NameOf(lost.worker()), *program, now));
}

// The shards on the worker's devices are lost, and no others. The scheduler decides about those whose producer has not
// ended there.
void Controller::LoseShards(const wire::WorkerState& lost) {
  const wire::FailureRef failure = wire::Share(lost.failure());
  const absl::flat_hash_set<DeviceId> gone(lost.worker().devices().begin(),
                                           lost.worker().devices().end());
  for (auto& [id, storage] : storages_) {
    auto producer = nodes_.find(storage.producer);
    if (producer != nodes_.end()) {
      const auto& open = producer->second.open_islands;
      if (std::find(open.begin(), open.end(), lost.worker().island()) != open.end()) continue;
    }
    for (size_t shard = 0; shard < storage.devices.size(); ++shard) {
      if (!gone.contains(storage.devices[shard])) continue;
      storage.lost.resize(storage.devices.size());
      if (!storage.lost[shard]) storage.lost[shard] = failure;
    }
  }
}

}  // namespace gangway::controller
