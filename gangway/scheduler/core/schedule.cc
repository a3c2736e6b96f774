// Admission (GS-2) and release (GS-4), in the island's one order (GS-1).
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::MakeReady(const NodeState& node) {
  if (node.devices.empty()) {
    ready_light_.insert(node.ordinal);
  } else {
    ready_.Insert(node.ordinal, node.devices);
  }
}

void Island::Unblock(Ordinal ordinal) {
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end() || it->second.released || it->second.blockers == 0) return;
  if (--it->second.blockers == 0) MakeReady(it->second);
  NoteExchange(it->second);
}

// Offers a spanning gang that could be released here to the sequencer, which knows the other
// islands. Until its turn the gang claims nothing: its parts elsewhere may wait long.
void Island::Offer(NodeState& node, Actions& actions) {
  node.offered = true;
  ready_.Erase(node.ordinal, node.devices);
  wire::Report report;
  report.mutable_ready()->add_ordinals(node.ordinal.number());
  actions.to_controller.push_back(std::move(report));
}

void Island::Admit(NodeState& node, Actions& actions) {
  Charge(node);
  turns_.erase(node.ordinal);
  wire::Report report;
  report.mutable_admitted()->add_ordinals(node.ordinal.number());
  actions.to_controller.push_back(std::move(report));
}

// A copy whose shards cross between islands in both directions: each side reports Released as soon
// as its own sources are released (GS-4 requires no more). Otherwise each side would wait forever
// for the other's release.
void Island::NoteExchange(const NodeState& node) {
  if (node.from_other_island && node.to_other_island && node.blockers == 1)
    exchanges_.push_back(node.ordinal);
}

void Island::ReportExchanges(Actions& actions) {
  for (Ordinal ordinal : exchanges_) {
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end() || !it->second.to_other_island) continue;
    it->second.to_other_island = false;
    wire::Report report;
    report.mutable_released()->add_ordinals(ordinal.number());
    actions.to_controller.push_back(std::move(report));
  }
  exchanges_.clear();
}

void Island::Schedule(Time now, Actions& actions) {
  do {  // others may wait for nodes that need neither memory nor slots, or fit, and were not looked at
    while (!ready_light_.empty()) TryRelease(nodes_.at(*ready_light_.begin()), now, actions);
    ScheduleHeavy(now, actions);
  } while (!ready_light_.empty() || (memory_freed_ && !memory_queue_.empty()));
}

// Gangs on their turn go before all others. Such a gang may already hold memory and slots on
// another island, so it waits only for released gangs and for lower turns. It never waits for a
// local gang, which may itself wait for such a holder.
size_t Island::ScheduleTurns(Time now, std::vector<bool>& claimed, Actions& actions) {
  size_t claimed_count = 0;
  for (Ordinal ordinal : std::vector<Ordinal>(turns_.begin(), turns_.end())) {
    NodeState& node = nodes_.at(ordinal);
    bool behind = std::any_of(node.devices.begin(), node.devices.end(),
                              [&claimed](IslandDevice device) { return claimed[device.number()]; });
    if (!behind) {
      Outcome outcome = TryRelease(node, now, actions);
      if (outcome == Outcome::kReleased || outcome == Outcome::kFailed) continue;
    }
    claimed_count += Claim(node, claimed);
  }
  return claimed_count;
}

// Keeps the devices for the node. One that runs alone needs all devices of its workers. Returns how many are new.
size_t Island::Claim(const NodeState& node, std::vector<bool>& claimed) const {
  size_t count = 0;
  auto claim = [&](IslandDevice device) {
    count += claimed[device.number()] ? 0 : 1;
    claimed[device.number()] = true;
  };
  for (IslandDevice device : node.devices) claim(device);
  if (!RunsAlone(node)) return count;
  for (uint32_t worker : node.workers) {
    const uint32_t first = workers_[worker].first_device.number();
    for (uint32_t i = 0; i < config_.workers[worker].devices.size(); ++i)
      claim(IslandDevice(first + i));
  }
  return count;
}

void Island::ScheduleHeavy(Time now, Actions& actions) {
  std::vector<bool> claimed(devices_.size(), false);
  size_t claimed_count = ScheduleTurns(now, claimed, actions);
  ResumeFitting();
  Ordinal next;  // not an iterator: releases make later nodes ready
  while (claimed_count < devices_.size()) {
    std::optional<Ordinal> head = ready_.NextHead(next);
    if (!head) break;
    next = Ordinal(head->number() + 1);
    NodeState& node = nodes_.at(*head);
    auto is_claimed = [&claimed](IslandDevice device) { return claimed[device.number()]; };
    if (std::any_of(node.devices.begin(), node.devices.end(), is_claimed)) continue;
    Outcome outcome = TryRelease(node, now, actions);
    if (outcome == Outcome::kReleased || outcome == Outcome::kFailed) continue;
    if (outcome == Outcome::kNoMemory) {
      ready_.Erase(node.ordinal, node.devices);
      memory_queue_.Add(node.ordinal, node.devices, NewBytes(node));
      continue;
    }
    claimed_count += Claim(node, claimed);
  }
}

// Nodes that stood aside for memory stand in line again if they fit now. They keep their age among those that wait.
void Island::ResumeFitting() {
  if (!std::exchange(memory_freed_, false) || memory_queue_.empty()) return;
  auto free = [this](const std::vector<IslandDevice>& devices) {
    uint64_t bytes = kSizeMax;
    for (IslandDevice device : devices) bytes = std::min(bytes, ledger_.free_bytes(device));
    return bytes;
  };
  for (const auto& [ordinal, devices] : memory_queue_.Fitting(free))
    ready_.Insert(ordinal, *devices);
}

void Island::WaitForMemory(NodeState& node, Time now) {
  if (node.memory_since) return;
  node.memory_since = now;
  memory_waits_.emplace(now, node.ordinal);
}

void Island::StopWaitingForMemory(NodeState& node) {
  memory_queue_.Remove(node.ordinal, node.devices);
  if (!node.memory_since) return;
  memory_waits_.erase({*node.memory_since, node.ordinal});
  node.memory_since.reset();
  memory_freed_ = true;  // for those that were not to overtake it
}

Island::Outcome Island::TryRelease(NodeState& node, Time now, Actions& actions) {
  if (auto failure = InputFailure(node)) {
    FailUnreleased(node.ordinal, std::move(failure), actions);
    return Outcome::kFailed;
  }
  if (!HasMemory(node)) {
    WaitForMemory(node, now);
    return Outcome::kNoMemory;
  }
  StopWaitingForMemory(node);
  if (!HasSlots(node)) return Outcome::kNoSlots;
  if (node.spans && !node.has_turn) {
    Offer(node, actions);
    return Outcome::kReleased;
  }
  if (node.spans) {  // released once its parts on the other islands are admitted too
    Admit(node, actions);
    return Outcome::kReleased;
  }
  Charge(node);
  Release(node, actions);
  node.released_at = now;
  if (node.kind == Kind::kUpload) WaitForBytes(node, now);
  return Outcome::kReleased;
}

wire::FailureRef Island::InputFailure(const NodeState& node) const {
  for (StorageId id : node.reads) {
    auto it = storages_.find(id);
    if (it != storages_.end() && it->second.failure) return it->second.failure;
  }
  return nullptr;
}

bool Island::HasMemory(const NodeState& node) const {
  const uint64_t bytes = NewBytes(node);
  if (bytes == 0) return true;
  if (!node.has_turn && !memory_queue_.MayTake(node.ordinal, node.devices)) return false;
  return std::all_of(node.devices.begin(), node.devices.end(),
                     [&](IslandDevice device) { return ledger_.Fits(device, bytes); });
}

// Of the devices without a slot, the node waits for the last one first: workers end a gang about in the order in which
// it was released to them, and each end that is awaited costs a look at the whole gang.
bool Island::HasSlots(const NodeState& node) {
  if (node.kind != Kind::kLaunch) return true;
  if (!MayRunBeside(node)) return false;
  const auto full = std::find_if(
      node.devices.rbegin(), node.devices.rend(),
      [this](IslandDevice device) { return StateOf(device).slots_taken >= config_.window; });
  if (full == node.devices.rend()) return true;
  StateOf(*full).slot_awaited = true;
  return false;
}

// What runs during a host callback may be what the callback waits for. So neither a program that calls its client runs
// alone, nor any other beside one.
bool Island::RunsAlone(const NodeState& node) const {
  if (!node.alone || node.calls_host || node.spans) return false;
  return std::all_of(node.workers.begin(), node.workers.end(),
                     [this](uint32_t worker) { return workers_[worker].host_callers == 0; });
}

// Whether the launches that its workers have let it run.
bool Island::MayRunBeside(const NodeState& node) {
  const bool alone = RunsAlone(node);
  for (uint32_t index : node.workers) {
    WorkerState& worker = workers_[index];
    if (worker.alone == Ordinal() && (!alone || worker.launches == 0)) continue;
    worker.launches_awaited = true;
    return false;
  }
  return true;
}

void Island::Charge(NodeState& node) {
  node.admitted = true;
  if (node.kind == Kind::kLaunch) {
    const bool alone = RunsAlone(node);
    for (uint32_t worker : node.workers) {
      ++workers_[worker].launches;
      if (node.calls_host) ++workers_[worker].host_callers;
      if (alone) workers_[worker].alone = node.ordinal;
    }
  }
  if (NewBytes(node) != 0) memory_queue_.NoteTaken(node.ordinal, node.devices);
  for (IslandDevice device : node.devices) {
    ledger_.Charge(node.session, device, NewBytes(node));
    if (node.kind == Kind::kLaunch) ++StateOf(device).slots_taken;
  }
  for (StorageId id : node.writes) {
    StorageState& storage = storages_.at(id);
    storage.charged.assign(storage.devices.size(), true);
  }
}

void Island::Release(NodeState& node, Actions& actions) {
  node.released = true;
  ready_.Erase(node.ordinal, node.devices);
  ready_light_.erase(node.ordinal);
  if (!node.receivers.empty()) SendPeers(node, actions);
  node.place = ++releases_;
  for (uint32_t worker : node.workers) SendRelease(worker, node.ordinal, actions);
  if (node.to_other_island) {
    wire::Report report;
    report.mutable_released()->add_ordinals(node.ordinal.number());
    actions.to_controller.push_back(std::move(report));
  }
  EndReads(node);
  if (node.kind == Kind::kUpload) return;  // its waiters need the bytes, not the release
  for (Ordinal waiter : node.waiters) Unblock(waiter);
  node.waiters.clear();
}

// The node is released, or will never be: nodes that consume what it reads no longer wait for it.
void Island::EndReads(const NodeState& node) {
  for (StorageId id : node.reads) {
    auto it = storages_.find(id);
    if (it == storages_.end()) continue;
    StorageState& storage = it->second;
    --storage.unreleased_readers;
    std::erase_if(storage.consumers, [&](StorageState::Consumer& consumer) {
      if (consumer.node <= node.ordinal || --consumer.readers_left != 0) return false;
      Unblock(consumer.node);
      return true;
    });
  }
}

// All senders are known by now: local ones are up, since the node was sent to them; those on other
// islands were named in Released.
void Island::SendPeers(const NodeState& node, Actions& actions) {
  wire::IslandItem item;
  wire::Peers* peers = item.mutable_peers();
  peers->set_ordinal(node.ordinal.number());
  for (uint32_t sender : node.senders) *peers->add_workers() = DescribeWorker(sender);
  for (const wire::Worker& sender : node.far_senders) *peers->add_workers() = sender;
  SendToWorkers(node.receivers, std::move(item), actions);
}

void Island::SendRelease(uint32_t worker, Ordinal ordinal, Actions& actions) {
  const WorkerState& state = workers_[worker];
  const bool follows = state.sent_in == step_ && state.sent_at < actions.to_workers.size() &&
                       actions.to_workers[state.sent_at].second.has_release();
  // Consecutive releases share one item: this is the hot path of a busy island.
  if (!follows) Emit(worker, {}, actions);
  wire::Release* release = actions.to_workers[state.sent_at].second.mutable_release();
  release->add_ordinals(ordinal.number());
  release->add_places(releases_);
}

void Island::OnMemoryDeadlines(Time now, Actions& actions) {
  while (!memory_waits_.empty() && memory_waits_.begin()->first + config_.memory_wait_max <= now) {
    NodeState& node = nodes_.at(memory_waits_.begin()->second);
    const bool fits = HasMemory(node);
    const bool on_turn = node.has_turn;
    StopWaitingForMemory(node);
    if (!fits) {
      FailUnreleased(node.ordinal, MemoryFailure(node), actions);
    } else if (!on_turn) {
      ready_.Insert(node.ordinal, node.devices);  // twice is once
    }
  }
}

void Island::WaitForBytes(NodeState& node, Time now) {
  StopWaitingForBytes(node);
  node.waits_since = now;
  uploads_.emplace(now, node.ordinal);
}

void Island::StopWaitingForBytes(NodeState& node) {
  if (node.waits_since) uploads_.erase({*node.waits_since, node.ordinal});
  node.waits_since.reset();
}

void Island::OnStaging(const wire::Staging& staging, Time now) {
  for (uint64_t number : staging.ordinals()) {
    auto it = nodes_.find(Ordinal(number));
    if (it != nodes_.end() && it->second.waits_since) WaitForBytes(it->second, now);
  }
}

// TM-1: cancels the upload on the workers that still wait, which then report the failure. A worker
// that has all its bytes by then succeeds.
void Island::OnUploadDeadlines(Time now, Actions& actions) {
  while (!uploads_.empty() && uploads_.begin()->first + config_.upload_wait_max <= now) {
    NodeState& node = nodes_.at(uploads_.begin()->second);
    StopWaitingForBytes(node);
    std::string workers;
    for (uint32_t worker : node.open_workers)
      absl::StrAppend(&workers, workers.empty() ? "" : ", ", WorkerName(worker));
    wire::IslandItem item;
    wire::Cancel* cancel = item.mutable_cancel();
    cancel->add_ordinals(node.ordinal.number());
    *cancel->mutable_failure() = wire::MakeFailure(
        absl::StatusCode::kDeadlineExceeded,
        absl::StrCat("no bytes of this array reached ", workers, " for ",
                     config_.upload_wait_max.count(), " ms: waited for the client of session ",
                     node.session, " to send them"),
        "Check whether the client still runs; then make the array again.");
    cancel->mutable_failure()->set_gang(node.ordinal.number());
    actions.notices.push_back(cancel->failure().message());
    SendToWorkers(node.open_workers, std::move(item), actions);
  }
}

// GS-2: names the sizes and the sessions that hold the fullest device's memory.
wire::FailureRef Island::MemoryFailure(const NodeState& node) const {
  IslandDevice device = *std::max_element(node.devices.begin(), node.devices.end(),
                                          [this](IslandDevice a, IslandDevice b) {
                                            return ledger_.used_bytes(a) < ledger_.used_bytes(b);
                                          });
  std::string holders;
  for (const auto& [session, bytes] : ledger_.HoldersOf(device)) {
    absl::StrAppend(&holders, holders.empty() ? "" : ", ", "session ", session,
                    session == node.session ? " (this one) " : " ", bytes, " bytes");
  }
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("waited ", config_.memory_wait_max.count(), " ms for ", NewBytes(node),
                   " bytes on device ", StateOf(device).id, ": ", ledger_.used_bytes(device),
                   " of ", ledger_.budget_bytes(device), " bytes are held, by ",
                   holders.empty() ? "no session" : holders),
      "Drop arrays that are no longer needed, donate arguments, or raise the budget.");
  wire::SetProgram(node.program, failure);
  failure.set_gang(node.ordinal.number());
  failure.set_device(static_cast<int>(StateOf(device).id.number()) + 1);
  return wire::Share(std::move(failure));
}

}  // namespace gangway::scheduler
