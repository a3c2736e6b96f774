// Which worker, gang or resource each node of this island waits for. Pure queries. Of several
// reasons, a node reports the one that it meets first.
#include <algorithm>

#include "gangway/scheduler/core/island.h"

namespace gangway::scheduler {
namespace {

constexpr int kWaitsMax = 256;
constexpr size_t kChainMax = 32;
constexpr std::chrono::milliseconds kSilent{1500};  // three heartbeats

}  // namespace

uint64_t Island::Ms(Time::duration duration) {
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<uint64_t>(std::max<int64_t>(0, ms));
}

// Of a worker that is up. A worker that `heard` does not know counts as heard.
bool Island::IsSilent(uint32_t worker, Time now, const std::vector<Time>& heard) const {
  return worker < heard.size() && now - heard[worker] >= kSilent;
}

struct Island::Heads {
  std::vector<Ordinal> released;  // by device: the oldest gang
  std::vector<Ordinal> ready;     // by device: the oldest one, which claims the device
  std::vector<Ordinal> in_turn;   // by worker: the oldest one that its device runtime runs in turn
};

Island::Heads Island::FindHeads() const {
  Heads heads{std::vector<Ordinal>(devices_.size()), std::vector<Ordinal>(devices_.size()),
              std::vector<Ordinal>(workers_.size())};
  for (const auto& [ordinal, node] : nodes_) {
    if (node.released && node.kind != Kind::kLaunch) continue;
    if (!node.released && (node.blockers > 0 || WaitsForOtherIslands(node))) continue;
    for (IslandDevice device : node.devices) {
      Ordinal& head =
          node.released ? heads.released[device.number()] : heads.ready[device.number()];
      if (head == Ordinal()) head = ordinal;
    }
    if (!node.released || !UsesRuntimesCollectives(node)) continue;
    for (uint32_t worker : node.open_workers) {
      Ordinal& head = heads.in_turn[worker];
      if (head == Ordinal() && workers_[worker].registration.collectives_take_turns())
        head = ordinal;
    }
  }
  return heads;
}

void Island::Explain(const wire::WhyRequest& request, Time now, const std::vector<Time>& heard,
                     wire::WhyReply& reply) const {
  const Heads heads = FindHeads();
  if (request.gang() != 0) {  // follow the chain of waits
    Ordinal gang(request.gang());
    for (size_t depth = 0; depth < kChainMax && gang != Ordinal(); ++depth) {
      auto it = nodes_.find(gang);
      if (it == nodes_.end()) break;
      ExplainNode(it->second, now, heard, heads, *reply.add_waits());
      const Ordinal next(reply.waits().rbegin()->for_gang());
      gang = next == gang ? Ordinal() : next;
    }
    return;
  }
  for (const auto& [ordinal, node] : nodes_) {
    if (request.session() != 0 && node.session != SessionId(request.session())) continue;
    if (reply.waits_size() < kWaitsMax) {
      ExplainNode(node, now, heard, heads, *reply.add_waits());
    } else {
      reply.set_left_out(reply.left_out() + 1);
    }
  }
  if (request.session() == 0) ExplainWorkers(now, heard, reply);
}

void Island::ExplainWorkers(Time now, const std::vector<Time>& heard, wire::WhyReply& reply) const {
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    const bool up = workers_[worker].incarnation != Incarnation();
    for (const WorkerState::Stuck& stuck : workers_[worker].stuck) {
      wire::Wait& wait = *reply.add_waits();
      wait.set_kind("worker");
      wait.set_reason(wire::Wait::REASON_STUCK);
      wait.add_workers(WorkerName(worker));
      wait.add_devices(stuck.device.number());
      wait.set_for_gang(stuck.gang.number());
      NameForGang(wait);
      wait.set_waited_ms(Ms(now - stuck.since));
    }
    if (up && now - heard[worker] < kSilent) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind("worker");
    wait.set_reason(up ? wire::Wait::REASON_WORKER_SILENT : wire::Wait::REASON_WORKER_DOWN);
    wait.add_workers(WorkerName(worker));
    if (heard[worker] != Time()) wait.set_waited_ms(Ms(now - heard[worker]));
  }
}

void Island::ExplainNode(const NodeState& node, Time now, const std::vector<Time>& heard,
                         const Heads& heads, wire::Wait& wait) const {
  constexpr const char* kKinds[] = {"call", "upload", "copy", "fetch"};
  wait.set_session(node.session.number());
  wait.set_gang(node.ordinal.number());
  wait.set_kind(kKinds[static_cast<int>(node.kind)]);
  if (node.program != nullptr) {
    wait.set_program(node.program->name);
    wait.set_source(node.program->source);
  }
  wait.set_waited_ms(Ms(now - node.arrived));
  if (node.released) {
    ExplainReleased(node, now, heard, heads, wait);
  } else if (node.unsent || node.blockers > 0) {
    ExplainBlocked(node, wait);
  } else {
    ExplainReady(node, now, heads, wait);
  }
  NameForGang(wait);
}

// Adds the session and the program of the gang that `wait` names.
void Island::NameForGang(wire::Wait& wait) const {
  auto blocking = nodes_.find(Ordinal(wait.for_gang()));
  if (blocking == nodes_.end()) return;
  wait.set_for_session(blocking->second.session.number());
  if (blocking->second.program == nullptr) return;
  wait.set_for_program(blocking->second.program->name);
  wait.set_for_source(blocking->second.program->source);
}

void Island::ExplainReleased(const NodeState& node, Time now, const std::vector<Time>& heard,
                             const Heads& heads, wire::Wait& wait) const {
  if (ExplainLate(node, now, heard, wait)) return;
  for (uint32_t worker : node.open_workers) {
    if (!IsSilent(worker, now, heard)) continue;
    wait.set_reason(wire::Wait::REASON_WORKER_SILENT);
    wait.set_waited_ms(Ms(now - heard[worker]));
    wait.add_workers(WorkerName(worker));
  }
  if (wait.workers_size() > 0) return;
  for (uint32_t worker : node.open_workers) {
    for (const WorkerState::Stuck& stuck : workers_[worker].stuck) {
      if (stuck.gang != node.ordinal) continue;
      wait.set_reason(wire::Wait::REASON_STUCK);
      wait.set_waited_ms(Ms(now - stuck.since));
      if (wait.devices().empty() || wait.workers().rbegin()[0] != WorkerName(worker))
        wait.add_workers(WorkerName(worker));
      wait.add_devices(stuck.device.number());
    }
  }
  if (wait.workers_size() > 0) return;
  for (uint32_t worker : node.open_workers) wait.add_workers(WorkerName(worker));
  if (node.waits_since) {
    wait.set_reason(wire::Wait::REASON_UPLOAD_BYTES);
    wait.set_waited_ms(Ms(now - *node.waits_since));
    wait.set_limit_ms(static_cast<uint64_t>(config_.upload_wait_max.count()));
    return;
  }
  wait.set_reason(wire::Wait::REASON_EXECUTING);
  wait.set_waited_ms(Ms(now - node.released_at));
  Ordinal earlier;
  for (IslandDevice device : node.devices) {
    const auto& open = node.open_workers;
    if (!std::binary_search(open.begin(), open.end(), StateOf(device).worker)) continue;
    wait.add_devices(StateOf(device).id.number());
    const Ordinal head = heads.released[device.number()];
    if (head != Ordinal() && head < node.ordinal && (earlier == Ordinal() || head < earlier))
      earlier = head;
  }
  if (earlier == Ordinal() && UsesRuntimesCollectives(node)) {
    for (uint32_t worker : node.open_workers) {
      const Ordinal head = heads.in_turn[worker];
      if (head != Ordinal() && head < node.ordinal && (earlier == Ordinal() || head < earlier))
        earlier = head;
    }
    if (earlier != Ordinal()) wait.set_reason(wire::Wait::REASON_RUNTIME_TURN);
  }
  wait.set_for_gang(earlier.number());
}

bool Island::UsesRuntimesCollectives(const NodeState& node) const {
  if (node.kind != Kind::kLaunch) return false;
  const auto executable = executables_.find(node.executable);
  return executable != executables_.end() && executable->second.load.has_collectives() &&
         !HasMembers(executable->second.load);
}

void Island::ExplainBlocked(const NodeState& node, wire::Wait& wait) const {
  for (uint32_t worker : node.workers) {
    if (workers_[worker].incarnation == Incarnation()) wait.add_workers(WorkerName(worker));
  }
  if (node.unsent && wait.workers_size() > 0) {
    wait.set_reason(wire::Wait::REASON_WORKER_DOWN);
    wait.set_limit_ms(static_cast<uint64_t>(config_.worker_wait_max.count()));
    return;
  }
  for (StorageId id : node.reads) {
    auto storage = storages_.find(id);
    if (storage == storages_.end()) continue;
    auto producer = nodes_.find(storage->second.producer);
    if (producer == nodes_.end()) continue;
    if (producer->second.released && producer->second.kind != Kind::kUpload) continue;
    wait.set_reason(wire::Wait::REASON_INPUT);
    wait.set_for_gang(producer->first.number());
    return;
  }
  wait.set_reason(node.from_other_island ? wire::Wait::REASON_OTHER_ISLAND
                                         : wire::Wait::REASON_READERS);
  if (node.from_other_island) return;
  for (const auto& [ordinal, reader] : nodes_) {  // the earliest reader of a donated storage
    if (reader.released || ordinal >= node.ordinal) continue;
    const bool reads =
        std::any_of(node.consumes.begin(), node.consumes.end(), [&reader = reader](StorageId id) {
          return std::find(reader.reads.begin(), reader.reads.end(), id) != reader.reads.end();
        });
    if (!reads) continue;
    wait.set_for_gang(ordinal.number());
    return;
  }
}

void Island::ExplainReady(const NodeState& node, Time now, const Heads& heads,
                          wire::Wait& wait) const {
  if (WaitsForOtherIslands(node)) return wait.set_reason(wire::Wait::REASON_OTHER_ISLAND);
  if (node.memory_since) {
    wait.set_waited_ms(Ms(now - *node.memory_since));
    return ExplainMemory(node, wait);
  }
  for (IslandDevice device : node.devices) {
    const Ordinal head = heads.ready[device.number()];
    if (head == Ordinal() || head >= node.ordinal) continue;
    wait.set_reason(wire::Wait::REASON_EARLIER_GANG);
    wait.add_devices(StateOf(device).id.number());
    wait.set_for_gang(head.number());
    return;
  }
  wait.set_reason(wire::Wait::REASON_SLOTS);
  for (IslandDevice device : node.devices) {
    if (StateOf(device).slots_taken < config_.window) continue;
    wait.add_devices(StateOf(device).id.number());
    wait.set_for_gang(heads.released[device.number()].number());
    return;
  }
  for (uint32_t worker : node.workers) {  // it runs alone, or one there does
    const std::vector<const NodeState*> launches = LaunchesOn(worker);
    if (!launches.empty()) return wait.set_for_gang(launches[0]->ordinal.number());
  }
}

// GS-2: names the fullest device and the sessions whose arrays fill it.
void Island::ExplainMemory(const NodeState& node, wire::Wait& wait) const {
  const IslandDevice device = *std::max_element(
      node.devices.begin(), node.devices.end(), [this](IslandDevice a, IslandDevice b) {
        return ledger_.used_bytes(a) < ledger_.used_bytes(b);
      });
  wait.set_reason(wire::Wait::REASON_MEMORY);
  wait.set_limit_ms(static_cast<uint64_t>(config_.memory_wait_max.count()));
  wait.add_devices(StateOf(device).id.number());
  wait.set_needed_bytes(NewBytes(node));
  wait.set_used_bytes(ledger_.used_bytes(device));
  wait.set_budget_bytes(ledger_.budget_bytes(device));
  for (const auto& [session, bytes] : ledger_.HoldersOf(device)) {
    wire::Wait::Holder& holder = *wait.add_holders();
    holder.set_session(session.number());
    holder.set_bytes(bytes);
  }
}

}  // namespace gangway::scheduler
