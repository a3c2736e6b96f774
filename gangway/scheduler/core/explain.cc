// Implementation of explain.h.
#include "gangway/scheduler/core/explain.h"

#include <algorithm>
#include <vector>

#include "gangway/scheduler/core/late.h"
#include "gangway/scheduler/core/launches.h"

namespace gangway::scheduler {
namespace {

constexpr int kWaitsMax = 256;
constexpr size_t kChainMax = 32;

class Explainer {
 public:
  explicit Explainer(const View& view) : view_(view), island_(view.island) { FindHeads(); }

  void AddNode(const NodeState& node, wire::Wait& wait) const;
  void AddWorkers(wire::WhyReply& reply) const;

 private:
  void FindHeads();
  void NameForGang(wire::Wait& wait) const;
  void AddReleased(const NodeState& node, wire::Wait& wait) const;
  void AddSilent(const NodeState& node, wire::Wait& wait) const;
  void AddStuck(const NodeState& node, wire::Wait& wait) const;
  void AddRunning(const NodeState& node, wire::Wait& wait) const;
  void AddBlocked(const NodeState& node, wire::Wait& wait) const;
  void AddPutAhead(const NodeState& node, wire::Wait& wait) const;
  void AddReader(const NodeState& node, wire::Wait& wait) const;
  void AddReady(const NodeState& node, wire::Wait& wait) const;
  void AddMemory(const NodeState& node, wire::Wait& wait) const;
  bool UsesRuntimesCollectives(const NodeState& node) const;
  uint64_t LimitMs(WaitFor what) const { return View::ToMs(island_.waits.limit(what)); }

  const View& view_;
  const IslandState& island_;
  std::vector<Ordinal> released_;  // by device: the oldest gang
  std::vector<Ordinal> ready_;     // by device: the oldest one, for which the device is kept
  std::vector<Ordinal> in_turn_;   // by worker: the oldest one that its device runtime runs in turn
};

void Explainer::FindHeads() {
  released_.resize(island_.fleet.device_count());
  ready_.resize(island_.fleet.device_count());
  in_turn_.resize(island_.fleet.worker_count());
  for (const auto& [ordinal, node] : island_.nodes.all()) {
    if (node.released() && !node.is_launch()) continue;
    if (!node.released() && (node.blockers > 0 || node.waits_for_other_islands())) continue;
    for (IslandDevice device : node.devices()) {
      Ordinal& head = node.released() ? released_[device.number()] : ready_[device.number()];
      if (head == Ordinal()) head = ordinal;
    }
    if (!node.released() || !UsesRuntimesCollectives(node)) continue;
    for (uint32_t worker : node.open_workers) {
      Ordinal& head = in_turn_[worker];
      if (head == Ordinal() && island_.fleet.RegistrationOf(worker).collectives_take_turns())
        head = ordinal;
    }
  }
}

void Explainer::AddWorkers(wire::WhyReply& reply) const {
  const Fleet& fleet = island_.fleet;
  for (uint32_t worker = 0; worker < fleet.worker_count(); ++worker) {
    for (const Fleet::Stuck& stuck : fleet.StuckOf(worker)) {
      wire::Wait& wait = *reply.add_waits();
      wait.set_kind(wire::Wait::KIND_WORKER);
      wait.set_reason(wire::Wait::REASON_STUCK);
      wait.add_workers(fleet.NameOf(worker));
      wait.add_devices(stuck.device.number());
      wait.set_for_gang(stuck.gang.number());
      NameForGang(wait);
      wait.set_waited_ms(view_.MsSince(stuck.since));
    }
    const bool up = fleet.IsUp(worker);
    const Time heard = view_.heard[worker];
    if (up && view_.now - heard < View::kSilent) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind(wire::Wait::KIND_WORKER);
    wait.set_reason(up ? wire::Wait::REASON_WORKER_SILENT : wire::Wait::REASON_WORKER_DOWN);
    wait.add_workers(fleet.NameOf(worker));
    if (heard != Time()) wait.set_waited_ms(view_.MsSince(heard));
  }
}

void Explainer::AddNode(const NodeState& node, wire::Wait& wait) const {
  constexpr wire::Wait::Kind kKinds[] = {wire::Wait::KIND_CALL, wire::Wait::KIND_UPLOAD,
                                         wire::Wait::KIND_COPY, wire::Wait::KIND_FETCH,
                                         wire::Wait::KIND_UPLOAD};
  wait.set_session(node.session.number());
  wait.set_gang(node.ordinal.number());
  wait.set_kind(kKinds[static_cast<int>(node.kind())]);
  if (node.program != nullptr) {
    wait.set_program(node.program->name);
    wait.set_source(node.program->source);
  }
  wait.set_waited_ms(view_.MsSince(node.arrived));
  if (node.released()) {
    AddReleased(node, wait);
  } else if (node.blockers > 0) {
    AddBlocked(node, wait);
  } else {
    AddReady(node, wait);
  }
  NameForGang(wait);
}

// Adds the session and the program of the gang that `wait` names.
void Explainer::NameForGang(wire::Wait& wait) const {
  const NodeState* blocking = island_.nodes.Find(Ordinal(wait.for_gang()));
  if (blocking == nullptr) return;
  wait.set_for_session(blocking->session.number());
  if (blocking->program == nullptr) return;
  wait.set_for_program(blocking->program->name);
  wait.set_for_source(blocking->program->source);
}

// --- Released ---

void Explainer::AddReleased(const NodeState& node, wire::Wait& wait) const {
  if (ExplainLate(view_, node, wait)) return;
  AddSilent(node, wait);
  if (wait.workers_size() > 0) return;
  AddStuck(node, wait);
  if (wait.workers_size() > 0) return;
  for (uint32_t worker : node.open_workers) wait.add_workers(island_.fleet.NameOf(worker));
  const auto bytes_since = island_.waits.Since(WaitFor::kBytes, node.ordinal);
  if (!bytes_since) return AddRunning(node, wait);
  wait.set_reason(wire::Wait::REASON_UPLOAD_BYTES);
  wait.set_waited_ms(view_.MsSince(*bytes_since));
  wait.set_limit_ms(LimitMs(WaitFor::kBytes));
}

void Explainer::AddSilent(const NodeState& node, wire::Wait& wait) const {
  for (uint32_t worker : node.open_workers) {
    if (!view_.IsSilent(worker)) continue;
    wait.set_reason(wire::Wait::REASON_WORKER_SILENT);
    wait.set_waited_ms(view_.MsSince(view_.heard[worker]));
    wait.add_workers(island_.fleet.NameOf(worker));
  }
}

void Explainer::AddStuck(const NodeState& node, wire::Wait& wait) const {
  for (uint32_t worker : node.open_workers) {
    const std::string name = island_.fleet.NameOf(worker);
    for (const Fleet::Stuck& stuck : island_.fleet.StuckOf(worker)) {
      if (stuck.gang != node.ordinal) continue;
      wait.set_reason(wire::Wait::REASON_STUCK);
      wait.set_waited_ms(view_.MsSince(stuck.since));
      if (wait.devices().empty() || wait.workers().rbegin()[0] != name) wait.add_workers(name);
      wait.add_devices(stuck.device.number());
    }
  }
}

void Explainer::AddRunning(const NodeState& node, wire::Wait& wait) const {
  wait.set_reason(wire::Wait::REASON_EXECUTING);
  wait.set_waited_ms(view_.MsSince(node.released_at));
  Ordinal earlier;
  const auto note_earlier = [&](Ordinal head) {
    if (head != Ordinal() && head < node.ordinal && (earlier == Ordinal() || head < earlier))
      earlier = head;
  };
  for (IslandDevice device : node.devices()) {
    if (!node.is_open_on(island_.fleet.WorkerOf(device))) continue;
    wait.add_devices(island_.fleet.IdOf(device).number());
    note_earlier(released_[device.number()]);
  }
  if (earlier == Ordinal() && UsesRuntimesCollectives(node)) {
    for (uint32_t worker : node.open_workers) note_earlier(in_turn_[worker]);
    if (earlier != Ordinal()) wait.set_reason(wire::Wait::REASON_RUNTIME_TURN);
  }
  wait.set_for_gang(earlier.number());
}

bool Explainer::UsesRuntimesCollectives(const NodeState& node) const {
  if (!node.is_launch()) return false;
  const Executable* executable = island_.executables.Find(node.launch()->executable);
  return executable != nullptr && executable->uses_runtimes_collectives();
}

// --- Not released ---

void Explainer::AddBlocked(const NodeState& node, wire::Wait& wait) const {
  for (uint32_t worker : node.workers) {
    if (!island_.fleet.IsUp(worker)) wait.add_workers(island_.fleet.NameOf(worker));
  }
  if (node.stage == NodeStage::kUnsent && wait.workers_size() > 0) {
    wait.set_reason(wire::Wait::REASON_WORKER_DOWN);
    wait.set_limit_ms(LimitMs(WaitFor::kWorkers));
    return;
  }
  if (node.stage == NodeStage::kUnsent && node.put() != nullptr) return AddPutAhead(node, wait);
  for (StorageId id : node.reads) {
    const NodeState* producer = island_.nodes.Find(island_.storages.ProducerOf(id));
    if (producer == nullptr || node.WaitsFor(*producer) == Until::kNothing) continue;
    wait.set_reason(wire::Wait::REASON_INPUT);
    wait.set_for_gang(producer->ordinal.number());
    return;
  }
  const CopyPart* copy = node.copy();
  if (copy != nullptr && copy->from_other_island)
    return wait.set_reason(wire::Wait::REASON_OTHER_ISLAND);
  wait.set_reason(wire::Wait::REASON_READERS);
  if (node.is_launch()) AddReader(node, wait);
}

// The earliest put on a worker that has as many as it may (put_room.h).
void Explainer::AddPutAhead(const NodeState& node, wire::Wait& wait) const {
  wait.set_reason(wire::Wait::REASON_EARLIER_GANG);
  for (IslandDevice device : node.devices()) {
    if (island_.put_room.IsFull(island_.fleet.WorkerOf(device)))
      wait.add_devices(island_.fleet.IdOf(device).number());
  }
  for (const auto& [ordinal, ahead] : island_.nodes.all()) {
    if (ahead.put() == nullptr || ahead.stage == NodeStage::kUnsent) continue;
    const bool fills = std::ranges::any_of(node.workers, [&](uint32_t worker) {
      return island_.put_room.IsFull(worker) && ahead.is_open_on(worker);
    });
    if (fills) return wait.set_for_gang(ordinal.number());
  }
}

// The earliest reader of a donated storage.
void Explainer::AddReader(const NodeState& node, wire::Wait& wait) const {
  const std::vector<StorageId>& consumes = node.launch()->consumes;
  for (const auto& [ordinal, reader] : island_.nodes.all()) {
    if (reader.released() || ordinal >= node.ordinal) continue;
    const bool reads = std::ranges::any_of(
        reader.reads, [&](StorageId id) { return std::ranges::binary_search(consumes, id); });
    if (reads) return wait.set_for_gang(ordinal.number());
  }
}

void Explainer::AddReady(const NodeState& node, wire::Wait& wait) const {
  if (node.waits_for_other_islands()) return wait.set_reason(wire::Wait::REASON_OTHER_ISLAND);
  if (const auto since = island_.waits.Since(WaitFor::kMemory, node.ordinal)) {
    wait.set_waited_ms(view_.MsSince(*since));
    return AddMemory(node, wait);
  }
  for (IslandDevice device : node.devices()) {
    const Ordinal head = ready_[device.number()];
    if (head == Ordinal() || head >= node.ordinal) continue;
    wait.set_reason(wire::Wait::REASON_EARLIER_GANG);
    wait.add_devices(island_.fleet.IdOf(device).number());
    return wait.set_for_gang(head.number());
  }
  wait.set_reason(wire::Wait::REASON_SLOTS);
  for (IslandDevice device : node.devices()) {
    if (!island_.admission.IsFull(device)) continue;
    wait.add_devices(island_.fleet.IdOf(device).number());
    return wait.set_for_gang(released_[device.number()].number());
  }
  for (uint32_t worker : node.workers) {  // it runs alone, or one there does
    const std::vector<const NodeState*> launches = LaunchesOn(island_.nodes, worker);
    if (!launches.empty()) return wait.set_for_gang(launches[0]->ordinal.number());
  }
}

// GS-2: names the fullest device and the sessions whose arrays fill it.
void Explainer::AddMemory(const NodeState& node, wire::Wait& wait) const {
  const Ledger& ledger = island_.books.ledger();
  const IslandDevice device = ledger.Fullest(node.devices());
  wait.set_reason(wire::Wait::REASON_MEMORY);
  wait.set_limit_ms(LimitMs(WaitFor::kMemory));
  wait.add_devices(island_.fleet.IdOf(device).number());
  wait.set_needed_bytes(node.new_bytes());
  wait.set_used_bytes(ledger.used_bytes(device));
  wait.set_budget_bytes(ledger.budget_bytes(device));
  for (const auto& [session, bytes] : ledger.HoldersOf(device)) {
    wire::Wait::Holder& holder = *wait.add_holders();
    holder.set_session(session.number());
    holder.set_bytes(bytes);
  }
}

}  // namespace

void Explain(const View& view, const wire::WhyRequest& request, wire::WhyReply& reply) {
  const Explainer explainer(view);
  const Nodes& nodes = view.island.nodes;
  if (request.gang() != 0) {  // follow the chain of waits
    Ordinal gang(request.gang());
    for (size_t depth = 0; depth < kChainMax && gang != Ordinal(); ++depth) {
      const NodeState* node = nodes.Find(gang);
      if (node == nullptr) break;
      explainer.AddNode(*node, *reply.add_waits());
      const Ordinal next(reply.waits().rbegin()->for_gang());
      gang = next == gang ? Ordinal() : next;
    }
    return;
  }
  for (const auto& [ordinal, node] : nodes.all()) {
    if (request.session() != 0 && node.session != SessionId(request.session())) continue;
    if (reply.waits_size() < kWaitsMax) {
      explainer.AddNode(node, *reply.add_waits());
    } else {
      reply.set_left_out(reply.left_out() + 1);
    }
  }
  if (request.session() == 0) explainer.AddWorkers(reply);
}

}  // namespace gangway::scheduler
