// Implementation of admission.h.
#include "gangway/scheduler/core/admission.h"

#include <algorithm>

#include "gangway/base/sizes.h"

namespace gangway::scheduler {

bool KeptDevices::HasOneOf(const std::vector<IslandDevice>& devices) const {
  return std::ranges::any_of(devices,
                             [this](IslandDevice device) { return kept_[device.number()]; });
}

Admission::Admission(const Fleet& fleet, Books& books, uint32_t window)
    : fleet_(fleet),
      books_(books),
      window_(window),
      slots_(fleet.device_count()),
      workers_(fleet.worker_count()) {}

// --- Nodes that wait ---

void Admission::AddReady(const NodeState& node) {
  if (node.devices().empty()) {
    ready_light_.insert(node.ordinal);
  } else {
    ready_.Insert(node.ordinal, node.layout->number);
  }
}

void Admission::StandAside(const NodeState& node) {
  ready_.Erase(node.ordinal, node.layout->number);
  memory_queue_.Add(node.ordinal, node.layout, node.new_bytes());
}

void Admission::EndStandingAside(const NodeState& node) {
  memory_queue_.Remove(node.ordinal, *node.layout);
}

void Admission::Remove(const NodeState& node) {
  ready_.Erase(node.ordinal, node.layout->number);
  ready_light_.erase(node.ordinal);
  memory_queue_.Remove(node.ordinal, *node.layout);
  turns_.erase(node.ordinal);
}

// --- Which one is next ---

std::optional<Ordinal> Admission::NextLight() const {
  return ready_light_.empty() ? std::nullopt : std::optional<Ordinal>(*ready_light_.begin());
}

void Admission::ResumeFitting() {
  if (!books_.TakeFreed() || memory_queue_.empty()) return;
  const Ledger& ledger = books_.ledger();
  auto free = [&ledger](const std::vector<IslandDevice>& devices) {
    uint64_t bytes = kSizeMax;
    for (IslandDevice device : devices) bytes = std::min(bytes, ledger.free_bytes(device));
    return bytes;
  };
  for (const auto& [ordinal, layout] : memory_queue_.Fitting(free))
    ready_.Insert(ordinal, layout->number);
}

void Admission::Keep(const NodeState& node, KeptDevices& kept) const {
  for (IslandDevice device : node.devices()) kept.Add(device);
  if (!RunsAlone(node)) return;
  for (uint32_t worker : node.workers) {
    const uint32_t first = fleet_.FirstDeviceOf(worker).number();
    for (uint32_t i = 0; i < fleet_.DevicesOf(worker).size(); ++i)
      kept.Add(IslandDevice(first + i));
  }
}

// --- What it may have ---

bool Admission::HasMemory(const NodeState& node) const {
  const uint64_t bytes = node.new_bytes();
  if (bytes == 0) return true;
  const bool on_turn = node.stage == NodeStage::kOnTurn;
  if (!on_turn && !memory_queue_.MayTake(node.ordinal, node.devices())) return false;
  return std::ranges::all_of(
      node.devices(), [&](IslandDevice device) { return books_.ledger().Fits(device, bytes); });
}

// Of the devices without a slot, the node waits for the last one first: workers end a gang about in the order in which
// it was released to them, and each end that is awaited costs a look at the whole gang.
bool Admission::HasSlots(const NodeState& node) {
  if (!node.is_launch()) return true;
  if (!MayRunBeside(node)) return false;
  const auto full = std::find_if(node.devices().rbegin(), node.devices().rend(),
                                 [this](IslandDevice device) { return IsFull(device); });
  if (full == node.devices().rend()) return true;
  slots_[full->number()].awaited = true;
  return false;
}

// What runs during a host callback may be what the callback waits for. So neither a program that calls its client runs
// alone, nor any other beside one.
bool Admission::RunsAlone(const NodeState& node) const {
  const LaunchPart* launch = node.launch();
  if (launch == nullptr || !launch->alone || launch->calls_host || launch->spans) return false;
  return std::ranges::all_of(
      node.workers, [this](uint32_t worker) { return workers_[worker].host_callers == 0; });
}

// Whether the launches that its workers have let it run.
bool Admission::MayRunBeside(const NodeState& node) {
  const bool alone = RunsAlone(node);
  for (uint32_t index : node.workers) {
    Worker& worker = workers_[index];
    if (worker.alone == Ordinal() && (!alone || worker.launches == 0)) continue;
    worker.awaited = true;
    return false;
  }
  return true;
}

void Admission::Take(const NodeState& node) {
  if (node.is_launch()) {
    const bool alone = RunsAlone(node);
    for (uint32_t worker : node.workers) {
      ++workers_[worker].launches;
      if (node.calls_host()) ++workers_[worker].host_callers;
      if (alone) workers_[worker].alone = node.ordinal;
    }
    for (IslandDevice device : node.devices()) ++slots_[device.number()].taken;
  }
  if (node.new_bytes() != 0) memory_queue_.NoteTaken(node.ordinal, node.devices());
  books_.Charge(node.session, node.devices(), node.new_bytes());
}

void Admission::ReturnWorker(uint32_t index, const NodeState& node) {
  Worker& worker = workers_[index];
  woken_ |= std::exchange(worker.awaited, false);
  --worker.launches;
  if (node.calls_host()) --worker.host_callers;
  if (worker.alone == node.ordinal) worker.alone = {};
  const IslandDevice first = fleet_.FirstDeviceOf(index);
  for (auto device = std::lower_bound(node.devices().begin(), node.devices().end(), first);
       device != node.devices().end() && fleet_.WorkerOf(*device) == index; ++device)
    ReturnSlot(*device);
}

void Admission::ReturnSlot(IslandDevice device) {
  Slots& slots = slots_[device.number()];
  woken_ |= std::exchange(slots.awaited, false);
  --slots.taken;
}

}  // namespace gangway::scheduler
