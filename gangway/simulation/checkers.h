// Checks of the invariants that every run must keep, one class per invariant. Each class observes
// events, keeps its own model, independent of the cores, and reports violations in words.
#ifndef GANGWAY_SIMULATION_CHECKERS_H_
#define GANGWAY_SIMULATION_CHECKERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

// Collects violations. The first few are enough: later ones are often their consequences.
class Violations {
 public:
  void Add(const std::string& invariant, const std::string& what) {
    if (list_.size() < 10) list_.push_back(invariant + ": " + what);
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
};

// GS-1: the queues agree with a single order of nodes: their orders together have no cycle.
class OrderChecker {
 public:
  explicit OrderChecker(Violations* violations) : violations_(violations) {}
  // `queue`: one life of a worker.
  void OnRelease(const std::string& queue, uint64_t ordinal) { queues_[queue].push_back(ordinal); }
  void Finish();

 private:
  Violations* const violations_;
  std::map<std::string, std::vector<uint64_t>> queues_;
};

// GS-4: at the release of a node, every producer of its inputs, on any island, is released or has
// ended; an upload must have ended.
class ReleaseChecker {
 public:
  ReleaseChecker(Violations* violations, std::map<uint32_t, uint32_t> island_of)
      : violations_(violations), island_of_(std::move(island_of)) {}
  void OnLoad(const wire::Load& load);
  void OnSent(uint32_t island, const wire::Node& node);  // to a worker
  void OnEnded(uint32_t island, uint64_t ordinal) { ended_.emplace(island, ordinal); }
  // All that was sent to the island's workers so far.
  void OnAllEnded(uint32_t island);
  // Nodes that were released together, with their islands.
  void OnReleased(const std::vector<std::pair<uint32_t, uint64_t>>& together);
  uint64_t released_count() const { return released_.size(); }

 private:
  struct Input {
    uint32_t island = 0;         // holds the shard
    uint32_t reader_island = 0;  // needs the shard
    uint64_t storage = 0;
  };
  struct Producer {
    uint64_t ordinal = 0;
    bool upload = false;
  };
  using Devices = google::protobuf::RepeatedField<uint32_t>;  // of an array's shards
  void AddInputs(const wire::ArrayRef& ref, const Devices& devices, const Devices* to,
                 std::vector<Input>& inputs) const;

  Violations* const violations_;
  const std::map<uint32_t, uint32_t> island_of_;   // by device
  std::map<uint64_t, std::vector<Input>> inputs_;  // by ordinal
  std::map<uint64_t, Devices> places_;             // by executable
  std::map<uint64_t, Producer> producers_;         // by storage
  std::set<std::pair<uint32_t, uint64_t>> sent_;   // island, ordinal
  std::set<std::pair<uint32_t, uint64_t>> released_;
  std::set<std::pair<uint32_t, uint64_t>> ended_;
};

// OB-1 on the workers: no shard is freed while a node uses it, used while it is absent, or consumed before its other
// readers are released.
class ReferenceChecker {
 public:
  using Shard = std::pair<uint64_t, uint32_t>;  // storage, index
  explicit ReferenceChecker(Violations* violations) : violations_(violations) {}
  // `worker`: one life of it.
  void OnCreate(const std::string& worker, Shard shard) { workers_[worker].shards.insert(shard); }
  void OnNode(const std::string& worker, uint64_t ordinal, const std::set<Shard>& shards);
  void OnRelease(const std::string& worker, uint64_t ordinal, const std::set<Shard>& consumed);
  void OnEnd(const std::string& worker, uint64_t ordinal) { workers_[worker].nodes.erase(ordinal); }
  void OnFree(const std::string& worker, uint64_t storage);  // all of its shards
  void OnFreeShard(const std::string& worker, Shard shard);

 private:
  struct Node {
    std::set<Shard> shards;
    bool released = false;
  };
  struct State {
    std::set<Shard> shards;
    std::map<uint64_t, Node> nodes;  // not ended
  };
  Violations* const violations_;
  std::map<std::string, State> workers_;
};

// GS-2: the bytes on a device never exceed the budget.
class MemoryChecker {
 public:
  MemoryChecker(Violations* violations, uint64_t budget_bytes)
      : violations_(violations), budget_bytes_(budget_bytes) {}
  void OnUse(const std::string& worker, int device, int64_t bytes);

 private:
  Violations* const violations_;
  const uint64_t budget_bytes_;  // 0: no limit
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_CHECKERS_H_
