// Checks of the invariants that every run must keep, one class per invariant. Each class observes
// events, keeps its own model, independent of the cores, and reports violations in words.
#ifndef GANGWAY_SIMULATION_CHECKERS_H_
#define GANGWAY_SIMULATION_CHECKERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gangway/program/interpreter.h"
#include "gangway/program/program.h"
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

using WorkerKey = std::pair<uint32_t, uint32_t>;  // island, index

// GS-1: every device's queue agrees with a single order of gangs: the queues' orders together have
// no cycle.
class OrderChecker {
 public:
  explicit OrderChecker(Violations* violations) : violations_(violations) {}
  void OnEnqueue(uint32_t device, uint64_t incarnation, uint64_t ordinal);
  void Finish();

 private:
  Violations* const violations_;
  std::map<std::pair<uint32_t, uint64_t>, std::vector<uint64_t>>
      queues_;  // by device and incarnation
};

// GS-4: at the release of a node, every producer of its inputs, on any island, is released or has
// ended; an upload must have ended.
class ReleaseChecker {
 public:
  ReleaseChecker(Violations* violations, std::map<uint32_t, uint32_t> island_of)
      : violations_(violations), island_of_(std::move(island_of)) {}
  void OnLoad(const wire::Load& load);  // controller -> scheduler
  void OnSent(const wire::Node& node);  // controller -> scheduler; once per island
  void OnEnded(uint32_t island, uint64_t ordinal) { ended_.emplace(island, ordinal); }
  void OnReleased(uint32_t island, const std::set<uint64_t>& ordinals);  // of one step
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
  void AddInputs(const wire::ArrayRef& ref, const wire::ArraySpec& spec, const wire::ArraySpec* to,
                 std::vector<Input>& inputs) const;

  Violations* const violations_;
  const std::map<uint32_t, uint32_t> island_of_;      // by device
  std::map<uint64_t, std::vector<Input>> inputs_;     // by ordinal
  std::map<uint64_t, wire::ArraySpec> places_;        // by executable: its devices
  std::map<uint64_t, Producer> producers_;            // by storage
  std::set<std::pair<uint32_t, uint64_t>> released_;  // island, ordinal
  std::set<std::pair<uint32_t, uint64_t>> ended_;
};

// OB-1 on the workers: no storage is freed while a node uses it, used while it is absent, or
// consumed before its other readers are released.
class ReferenceChecker {
 public:
  explicit ReferenceChecker(Violations* violations) : violations_(violations) {}
  void OnCreate(WorkerKey worker, uint64_t storage);
  void OnNode(WorkerKey worker, uint64_t ordinal, const std::set<uint64_t>& storages);
  void OnRelease(WorkerKey worker, uint64_t ordinal, const std::set<uint64_t>& consumed);
  void OnEnd(WorkerKey worker, uint64_t ordinal);
  void OnFree(WorkerKey worker, uint64_t storage);
  void OnLost(WorkerKey worker) { workers_.erase(worker); }

 private:
  struct Node {
    std::set<uint64_t> storages;
    bool released = false;
  };
  struct State {
    std::set<uint64_t> storages;
    std::map<uint64_t, Node> nodes;  // not ended
  };
  Violations* const violations_;
  std::map<WorkerKey, State> workers_;
};

// OB-1 and OB-2 at rest: exactly the storages of the clients' live handles are held, and none of a
// session that has ended.
class CountChecker {
 public:
  explicit CountChecker(Violations* violations) : violations_(violations) {}
  void Expect(const std::string& invariant, const std::string& what, uint64_t expected,
              uint64_t actual);
  // Compares the storages on a worker, with their sessions, to the live sessions.
  void OnHeld(WorkerKey worker, const std::vector<std::pair<uint64_t, uint64_t>>& held,
              const std::set<uint64_t>& live_sessions);

 private:
  Violations* const violations_;
};

// DF-3: fetched bytes equal those of the reference interpreter, for any schedule.
class ResultChecker {
 public:
  explicit ResultChecker(Violations* violations) : violations_(violations) {}
  // `result`: index of the program's result node that the fetch corresponds to.
  void OnFetched(uint64_t session, uint32_t result, uint32_t shard, const std::string& bytes);
  void Finish(uint64_t session, const program::Program& program,
              std::vector<program::Array> arguments, const program::Evaluate& evaluate);
  uint64_t compared_count() const { return compared_count_; }

 private:
  Violations* const violations_;
  std::map<uint64_t, std::map<std::pair<uint32_t, uint32_t>, std::string>> fetched_;  // by session
  uint64_t compared_count_ = 0;
};

// Every compile, await and fetch is answered exactly once. What must fail fails; nothing fails
// without a cause.
class AnswerChecker {
 public:
  enum class Outcome { kGood, kBad, kEither };  // the answers that are allowed

  explicit AnswerChecker(Violations* violations) : violations_(violations) {}
  void OnAsked(uint64_t session, const std::string& kind, uint64_t number, Outcome allowed);
  void OnAnswered(uint64_t session, const std::string& kind, uint64_t number,
                  const wire::Failure* failure);
  // TM-1: no upload reaches its deadline after its bytes were sent.
  void OnUploadFailed(uint64_t session, uint64_t upload, const wire::Failure& failure,
                      bool withheld);
  uint64_t late_upload_count() const { return late_upload_count_; }
  void OnSessionEnd(uint64_t session);
  void Drained();
  uint64_t answered_count() const { return answered_.size(); }
  const std::map<int, uint64_t>& failures_by_code() const { return failures_by_code_; }

 private:
  using Question = std::tuple<uint64_t, std::string, uint64_t>;
  Violations* const violations_;
  std::map<Question, Outcome> open_;
  std::set<Question> answered_;
  std::map<int, uint64_t> failures_by_code_;
  uint64_t late_upload_count_ = 0;
};

// GS-2: neither the scheduler's ledger nor the bytes on a device ever exceed the budget.
class MemoryChecker {
 public:
  MemoryChecker(Violations* violations, uint64_t budget_bytes)
      : violations_(violations), budget_bytes_(budget_bytes) {}
  void OnUse(const std::string& who, uint32_t device, int64_t bytes);

 private:
  Violations* const violations_;
  const uint64_t budget_bytes_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_CHECKERS_H_
