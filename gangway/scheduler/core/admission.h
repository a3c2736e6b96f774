// Which ready node is taken next, and whether it may have memory (GS-2), window slots and its workers. A policy that
// shares devices among sessions has its seat here.
//
// Ready nodes are taken in ordinal order. The devices of one that lacks slots are kept for it, so that no later node
// overtakes it there. One that lacks memory stands aside (memory_queue.h). Gangs on their turn go before all others.
// Such a gang may already hold memory and slots on another island, so it waits only for released gangs and for lower
// turns. It never waits for a local gang, which may itself wait for such a holder.
//
// It knows nothing of storages and of other nodes: whoever releases a node calls Take() before, and gives back what it
// took. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_ADMISSION_H_
#define GANGWAY_SCHEDULER_CORE_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/books.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/memory_queue.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/scheduler/core/ready_queue.h"

namespace gangway::scheduler {

// Devices that are kept for nodes which wait, while ready nodes are looked at.
class KeptDevices {
 public:
  explicit KeptDevices(size_t device_count) : kept_(device_count) {}
  void Add(IslandDevice device) {
    count_ += kept_[device.number()] ? 0 : 1;
    kept_[device.number()] = true;
  }
  bool HasOneOf(const std::vector<IslandDevice>& devices) const;
  bool has_all() const { return count_ == kept_.size(); }

 private:
  std::vector<bool> kept_;
  size_t count_ = 0;
};

class Admission {
 public:
  // `window`: launches in flight per device.
  Admission(const Fleet& fleet, Books& books, uint32_t window);

  // --- Nodes that wait ---

  void AddReady(const NodeState& node);
  // The sequencer has let the gang take memory and slots.
  void AddTurn(Ordinal gang) { turns_.insert(gang); }
  // It lacks memory: it stands aside until it fits.
  void StandAside(const NodeState& node);
  // It no longer waits for memory, whether it stood aside or not.
  void EndStandingAside(const NodeState& node);
  // It waits for nothing here any more.
  void Remove(const NodeState& node);

  // --- Which one is next ---

  // The first ready node that needs neither memory nor slots.
  std::optional<Ordinal> NextLight() const;
  // The next ready node from `from` on that is the first of its devices.
  std::optional<Ordinal> NextHead(Ordinal from) const { return ready_.NextHead(from); }
  // In the order in which they are served.
  std::vector<Ordinal> Turns() const { return {turns_.begin(), turns_.end()}; }
  // Nodes that stood aside and fit now stand in line again. They keep their age among those that wait.
  void ResumeFitting();
  // Whether one that stood aside may fit, and was not looked at.
  bool may_resume() const { return books_.freed() && !memory_queue_.empty(); }
  // Keeps the node's devices for it: of one that runs alone, all devices of its workers.
  void Keep(const NodeState& node, KeptDevices& kept) const;

  // --- What it may have ---

  bool HasMemory(const NodeState& node) const;
  // False: it is woken when what it lacks has come back.
  bool HasSlots(const NodeState& node);
  bool IsFull(IslandDevice device) const { return slots_[device.number()].taken >= window_; }
  uint32_t SlotsTaken(IslandDevice device) const { return slots_[device.number()].taken; }
  // The node takes memory, slots and workers.
  void Take(const NodeState& node);
  // A launch that holds them gives back its slots on the worker, and the worker.
  void ReturnWorker(uint32_t worker, const NodeState& node);
  // Whether something came back since the last call that a node waits for.
  bool TakeWoken() { return std::exchange(woken_, false); }

 private:
  struct Slots {
    uint32_t taken = 0;
    bool awaited = false;  // the next one that comes back lets a node go on
  };
  struct Worker {
    uint32_t launches = 0;      // admitted and not ended there
    uint32_t host_callers = 0;  // those of them that call their client
    Ordinal alone;              // the one that runs alone; 0 = none
    bool awaited = false;       // the next launch that ends lets a node go on
  };

  bool RunsAlone(const NodeState& node) const;
  bool MayRunBeside(const NodeState& node);
  void ReturnSlot(IslandDevice device);

  const Fleet& fleet_;
  Books& books_;
  const uint32_t window_;
  ReadyQueue ready_;               // need memory or slots
  std::set<Ordinal> ready_light_;  // need neither
  MemoryQueue memory_queue_;       // ready nodes that stand aside
  std::set<Ordinal> turns_;        // gangs on their turn, not yet admitted
  std::vector<Slots> slots_;       // by device
  std::vector<Worker> workers_;
  bool woken_ = false;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ADMISSION_H_
