// The compiles of all sessions: which of them the compiler process is asked for, and what its end means for each. Pure.
//
// One compile runs at a time, so the one that a dead compiler was at work on is known. Sessions take turns. While one
// runs, the compiler is asked to look the waiting programs up in its cache: a cached program does not wait for a turn.
//
// A program that was being compiled when the compiler process ended is compiled once more, since the end may have had
// another cause. If the process ends again, the program is quarantined: refused for `quarantine_time` after that end,
// by its hash, for all sessions. The list of such programs has a limit, beyond which it forgets the oldest; a new
// controller starts with an empty one.
//
// A compile that no session waits for any more is dropped; one that already runs has `unwanted_max` to end before the
// compiler process is ended. That end counts against no program.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

using Time = std::chrono::steady_clock::time_point;

struct CompileLimits {
  uint32_t compiles_max = 1024;                    // over all sessions
  uint64_t program_bytes_max = uint64_t{4} << 30;  // likewise
  uint64_t session_bytes_max = uint64_t{1} << 30;  // of the programs of one session
  uint64_t lookup_bytes_max =
      uint64_t{64} << 20;  // of programs that are being looked up; one may exceed it alone
  std::chrono::milliseconds compiler_wait_max{30000};  // for a compiler that is down
  std::chrono::milliseconds unwanted_max{10000};
  int deaths_max = 2;  // of the compiler process, at work on one program
  std::chrono::minutes quarantine_time{10};
  size_t suspects_max = 256;  // programs whose compile has ended with the compiler's death
};

struct PendingCompile {
  SessionId session;
  uint64_t handle = 0;
  wire::CompileRequest request;
  Time since;
};

struct CompileActions {
  std::vector<wire::CompileRequest> to_compiler;
  std::vector<std::pair<PendingCompile, wire::Failure>> failed;  // to be answered
  std::optional<std::string> end_compiler;                       // why; CompilerDown must follow
  std::vector<std::string> notices;                              // for people
};

class CompileQueue {
 public:
  explicit CompileQueue(const CompileLimits& limits) : limits_(limits) {}

  // Takes a compile whose request has a number of its own, larger than all before. What it refuses is in `failed`.
  void Add(PendingCompile compile, Time now, CompileActions& actions);
  // The compile that `result` answers; nothing if it answers none, or only a lookup.
  std::optional<PendingCompile> OnResult(const wire::CompileResult& result, Time now,
                                         CompileActions& actions);
  // The link did not take the request. `again`: the link is ending, and its successor is asked again; otherwise the
  // compile fails.
  void OnNotSent(uint64_t request, const wire::Failure& failure, bool again, Time now,
                 CompileActions& actions);
  void OnCompilerUp(Time now, CompileActions& actions);
  void OnCompilerDown(Time now, CompileActions& actions);
  void OnTime(Time now, CompileActions& actions);
  // No session waits for it any more. True: it was still pending.
  bool Forget(uint64_t request, Time now, CompileActions& actions);
  void ForgetSession(SessionId session, Time now, CompileActions& actions);

  std::optional<Time> next_deadline() const;
  bool compiler_up() const { return compiler_up_; }
  size_t size() const { return compiles_.size(); }
  void Explain(SessionId session, Time now, wire::WhyReply& reply) const;

 private:
  enum class State { kQueued, kLookup, kMissed, kRunning };
  struct Entry {
    PendingCompile compile;
    State state = State::kQueued;
    bool unwanted = false;  // only while it runs
    uint64_t bytes() const { return compile.request.program().size(); }
    PendingCompile Answered() const;  // without its program
  };
  // A program at whose compile the compiler process has died.
  struct Suspect {
    uint64_t program_bytes = 0;
    uint32_t device_count = 0;
    int deaths = 0;
    Time last;
  };

  void Pump(Time now, CompileActions& actions);
  void StartNext(Time now, CompileActions& actions);
  void LookUp(CompileActions& actions);
  std::optional<uint64_t> TakeTurn();
  void Remove(std::map<uint64_t, Entry>::iterator entry);
  void Drop(std::map<uint64_t, Entry>::iterator entry, Time now);
  std::optional<wire::Failure> CheckRoom(const PendingCompile& compile) const;
  std::optional<wire::Failure> CheckQuarantine(const wire::CompileRequest& request, Time now);
  void ForgetSuspects(Time now);
  bool AnySuspectLike(const wire::CompileRequest& request) const;
  void Blame(Entry& entry, Time now, CompileActions& actions);

  const CompileLimits limits_;
  std::map<uint64_t, Entry> compiles_;                 // by request number, oldest first
  std::map<SessionId, std::deque<uint64_t>> waiting_;  // of each session, in its order
  struct Share {
    uint32_t compiles = 0;
    uint64_t program_bytes = 0;
  };
  std::map<SessionId, Share> shares_;  // of the sessions in compiles_
  uint64_t program_bytes_ = 0;         // of all of them
  std::deque<uint64_t> to_look_up_;    // in the order of arrival; some may be gone
  uint64_t looking_up_bytes_ = 0;
  SessionId last_turn_;
  bool compiler_up_ = false;
  std::optional<uint64_t> running_;          // still held by the compiler, wanted or not
  std::optional<Time> unwanted_since_;       // of running_
  bool ending_ = false;                      // this compiler process was told to end
  std::map<std::string, Suspect> suspects_;  // by hash
};

// Names a program, with its options and device count, for people and for the quarantine: 64 hexadecimal digits. The
// devices that it runs on do not count.
std::string ProgramHash(const wire::CompileRequest& request);

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
