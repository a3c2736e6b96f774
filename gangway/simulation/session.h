// A session of the simulated cluster: a random program, sent through the real client library by a thread of its own,
// and recorded as a dataflow graph. What it fetches must equal the reference interpreter's result for that graph, bit
// by bit (DF-3); every question must be answered within its deadline; and nothing may fail without a cause.
//
// With SessionPlan::plants it also plants failures: gangs of which one member fails, and uploads that are given up.
// What depends on them must fail with the record of one of them, and nothing else may fail for it (ER-1, ER-2).
//
// If its client reports ends, each call and copy must be told of within its deadline, whether it looks for ends or not.
//
// Threading: Run and Finish on one thread of the world. Callbacks of the client come on its loop.
#ifndef GANGWAY_SIMULATION_SESSION_H_
#define GANGWAY_SIMULATION_SESSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/client/client_impl.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/program/interpreter.h"
#include "gangway/program/program.h"
#include "gangway/simulation/checkers.h"
#include "gangway/simulation/random.h"
#include "gangway/wire/failure.h"

namespace gangway::simulation {

struct SessionPlan {
  uint64_t seed = 0;
  std::string name;
  int ops = 40;
  uint64_t elements = 2;                          // of every shard
  std::vector<std::vector<uint32_t>> placements;  // device lists that programs run on
  // Of several workers of an island: what runs there communicates by Gangway's own collectives.
  std::set<std::vector<uint32_t>> spanning;
  uint32_t device_count = 0;  // of the cluster
  bool may_fail = false;      // something around it breaks
  bool withholds = false;     // bytes of some uploads
  bool plants = false;        // failures of its own, and slow members
  // It leaves after this many operations, while gangs of its own are in flight. -1: it stays to the end.
  int leaves_after = -1;
  // The longest time to the answer, from a planted failure or a kill, or from the question if that is later. Zero: only
  // `answer_max` counts.
  std::chrono::nanoseconds failure_max{};
  // How long slow members take, of all sessions so far. All limits are longer by this.
  std::shared_ptr<std::chrono::microseconds> slow = std::make_shared<std::chrono::microseconds>();
  // If nothing but workers is killed: when the worker of a device was, in order.
  std::function<std::vector<Clock::time_point>(uint32_t device)> kills_of;
  // How long its process has been stopped so far: time in which it could not have seen an answer.
  std::function<std::chrono::nanoseconds()> stopped_for;
  std::chrono::nanoseconds answer_max{};      // of every question
  std::chrono::microseconds think_max{2000};  // between two operations
  size_t live_arrays_max = 16;
  int64_t cost_max_us = 2000;  // of a program's run
};

class Session {
 public:
  // `client` outlives it.
  Session(SessionPlan plan, Client* client, Violations* violations);
  ~Session();

  // Sends its operations, and waits between some of them.
  void Run();
  // Waits for all answers, compares what arrived, and drops all arrays.
  void Finish();

  struct Counts {
    uint64_t calls = 0, copies = 0, uploads = 0;
    uint64_t launches = 0;  // of programs
    uint64_t launched = 0;  // the calls and transfers of these
    uint64_t told = 0;      // calls and copies whose ends it was told
    uint64_t gangs = 0;     // calls of programs with collectives of Gangway's own
    uint64_t spanning = 0;  // of them, over several workers
    uint64_t planted = 0;   // failures: calls of failing programs, and uploads that are given up
    uint64_t blamed = 0;    // answers that named a planted failure
    uint64_t slow = 0;      // calls with a slow member
    uint64_t compared = 0;  // shards
    uint64_t answered = 0;
    std::map<int, uint64_t> failed;  // answers, by absl::StatusCode
    std::chrono::nanoseconds longest{};
    std::chrono::nanoseconds longest_failure{};  // see SessionPlan::failure_max
  };
  bool lost() const { return *lost_; }  // its connection to the cluster
  bool left() const { return left_; }   // it has nothing to finish
  const Counts& counts() const { return counts_; }

 private:
  static constexpr uint64_t kPrograms = 6;                     // whose results are hashes
  static constexpr uint64_t kGangPrograms = 4;                 // with collectives of Gangway's own
  static constexpr uint64_t kFailingPrograms = 4;              // likewise, of which a member fails
  static constexpr std::chrono::milliseconds kLossKnown{500};  // to every client, after a kill

  using Devices = std::vector<uint32_t>;
  using Place = std::pair<uint64_t, uint32_t>;  // storage, shard
  // Planted failures that spoil an array, or may: a text of each one's record. `shards` are bad. A reader may take the
  // others as good ones, before it is known that their gang has failed.
  struct Blame {
    std::set<std::string> records;
    std::set<uint32_t> shards;
    void Add(const Blame& other) {
      records.insert(other.records.begin(), other.records.end());
      shards.insert(other.shards.begin(), other.shards.end());
    }
  };
  // An array was good at some time in between.
  struct Known {
    Clock::time_point from, to;
  };
  struct Array {
    program::ValueId value = 0;
    Devices devices;
    std::vector<Place> places;  // of shard i
    // Failures of what a view was made of. All of the view is spoiled if they were known then.
    std::set<std::string> sources;
    std::optional<Known> known;
  };
  struct GivenUp {
    OperationId upload{};
    std::string what;
  };
  struct Executable {
    ExecutableHandle handle{};
    uint64_t program = 0;
    bool dropped = false;
  };
  struct DrawnProgram {
    program::Program graph;          // whose functions are the handles of executables
    std::vector<Devices> arguments;  // where each is
    ProgramHandle handle{};
  };
  // A value of a program that is being drawn.
  struct DrawnValue {
    program::ValueId id = 0;
    Devices devices;
    bool is_usable = true;
    bool is_shared = false;  // views are made of it, or it is one: no call donates it
  };
  enum class Allowed { kGood, kBad, kEither };
  // What awaits an answer. Shared with the client's callbacks.
  struct Question {
    std::string what;
    ArrayHandle array{};  // whose answer it is, if it is that of a whole one
    Devices devices;      // of the shards that it asks about
    std::optional<Known> known;
    std::set<std::string> blame;  // records of planted failures that it may meet
    bool checked = false, good = false;
    Allowed allowed = Allowed::kGood;
    Clock::time_point asked;
    std::chrono::nanoseconds stopped{};  // before it was asked
    uint32_t result = 0;                 // of a fetch: index among the program's results
    uint32_t shard = 0;
    std::string bytes;
    Mutex mutex;
    CondVar answered;
    bool done GANGWAY_GUARDED_BY(mutex) = false;
    absl::Status status GANGWAY_GUARDED_BY(mutex);
    Clock::time_point at GANGWAY_GUARDED_BY(mutex);
  };

  uint64_t Below(uint64_t limit) { return random_.Below(limit); }
  void OneOp();
  const Devices& Placement() { return random_.Pick(plan_.placements); }
  std::string ProgramText(uint64_t program, const Devices& devices) const;
  std::string GangText(uint64_t program, const Devices& devices) const;
  static bool IsFailing(uint64_t program) { return program >= kPrograms + kGangPrograms; }
  std::string FailureOf(uint64_t program, const Devices& devices) const;
  uint64_t PickProgram(const Devices& devices);
  std::optional<Executable> Compile(uint64_t program, const Devices& devices);
  ArrayHandle Add(program::ValueId value, const Devices& devices);  // with a new storage
  ArrayHandle PickUsable();
  ArrayHandle Upload(const Devices& devices);
  void Call();
  // session_programs.cc
  void Launch();
  bool DrawProgram();
  bool DrawCall(std::vector<DrawnValue>& values, program::Program& graph);
  void DrawView(std::vector<DrawnValue>& values, program::Program& graph);
  std::optional<std::vector<ArrayHandle>> PickArguments(const DrawnProgram& drawn);
  void RecordCall(const DrawnProgram& drawn, const program::Node& call, std::vector<Array>& values,
                  std::vector<Place>& taken);
  Array RecordMove(const Array& from, const Devices& devices);
  void RecordView(const program::Node& view, std::vector<Array>& values);
  Array NewArray(program::ValueId value, const Devices& devices, const Blame& blame);
  client::ClientImpl& client() { return static_cast<client::ClientImpl&>(*client_); }
  std::vector<ArrayHandle> PickToCopy();
  void Copy();
  void Regroup();
  void Fetch();
  void AwaitSome();
  std::shared_ptr<Question> Await(const std::vector<ArrayHandle>& handles);
  void AwaitWhatWasGood();
  void Drop(bool consume);
  void Mistake();
  void BadArray(ArrayHandle handle, const std::string& what);
  void Consume(const std::vector<Place>& taken);
  void KeepRest(ArrayHandle handle, const Array& array, const std::vector<Place>& gone);
  void DropOneShard();
  std::vector<ShardOf> Gather(const Devices& devices, std::vector<Place>& places,
                              program::ValueId& value, Blame& blame);
  Blame BlameOf(const Array& array) const;
  bool IsSpoiled(const Array& array) const;
  void SetBlame(ArrayHandle array, const Blame& blame);
  void GiveUpLater(OperationId upload, ArrayHandle array);
  void GiveUp();
  void Leave();
  std::shared_ptr<Question> Ask(std::string what, Allowed allowed);
  void AskAbout(Question& question, ArrayHandle handle, const std::vector<uint32_t>& shards) const;
  Allowed Good() const { return plan_.may_fail ? Allowed::kEither : Allowed::kGood; }
  static StatusCallback Answered(std::shared_ptr<Question> question);
  StatusCallback ToldEnd(const std::string& what);  // of an operation that is submitted now
  void MayLookFor(OperationId operation);           // of which the end is told
  // Waits for the answer and checks it. False: it is not good.
  bool Check(Question& question);
  bool CheckOnce(Question& question);
  void CheckSoon(const Question& question, const wire::Failure& failure, Clock::time_point answered,
                 Clock::time_point known);
  void CheckLoss(const Question& question, const wire::Failure& failure,
                 Clock::time_point answered);
  void CheckBlame(const Question& question, const wire::Failure& failure,
                  Clock::time_point answered);
  Clock::time_point DeadlineOf(const Question& question) const;
  Allowed AfterKills(const Question& question, Clock::time_point answered) const;
  void Violate(const std::string& invariant, const std::string& what);
  absl::StatusOr<std::vector<std::vector<std::string>>> Evaluate(
      const program::Call& call, const std::vector<const program::Array*>& inputs) const;

  const SessionPlan plan_;
  Client* const client_;
  Violations* const violations_;
  Random random_;
  Random looks_random_{Mix(plan_.seed)};
  std::map<std::pair<uint64_t, Devices>, Executable> executables_;
  std::map<ArrayHandle, Array> arrays_;  // the usable ones
  std::set<ArrayHandle> consumed_;       // handles that are held, of arrays that are not usable
  std::vector<ArrayHandle> partly_dropped_;
  std::map<uint64_t, Blame> blame_;  // by storage
  std::vector<GivenUp> to_give_up_;
  std::vector<DrawnProgram> programs_;
  bool left_ = false;
  uint64_t next_storage_ = 1;
  program::Program program_;  // in the order of the operations
  std::vector<program::Array> arguments_;
  uint32_t result_count_ = 0;
  std::vector<std::shared_ptr<Question>> fetches_, others_;
  const std::shared_ptr<bool> lost_ = std::make_shared<bool>(false);
  Counts counts_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_SESSION_H_
