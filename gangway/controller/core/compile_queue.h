// The compiles of all sessions: which compiler process is asked for which of them, and what its end means. Pure.
//
// There are up to `compilers` processes, of which each compiles one program at a time, so the program that a dead one
// was at work on is known (compile_blame.h: what that costs the program and its session). The first process always
// runs; the others are spares: asked for when a compile waits that they could take, or when one has run for
// kSpareAfter or is large, and ended when they have had no work for kSpareIdle and another has none.
//
// Small programs go before large ones, and sessions take turns. Neither the large programs nor those of one session
// ever hold all compilers, so a small program of another session finds one. Owners whose programs have ended
// a compiler never get the first.
//
// The compilers are asked to look waiting programs up in the cache: a cached program does not wait for a turn.
//
// Where owners are isolated, a process belongs to the first owner whose program it compiles. It is replaced once that
// owner's last session has ended. If another owner's program finds no process, it is also replaced once it has no work,
// or between two programs after kOwnerTurn.
//
// A compile that passes `compile_max` fails, and its process is replaced. One that no session waits for any more is
// dropped; if it already runs, it has kUnwantedMax before its process is replaced, which counts against no program,
// and kUnwantedInTheWayMax if others wait and no process is free.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/claims.h"
#include "gangway/controller/core/compile_blame.h"
#include "gangway/controller/core/pending_compile.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct CompileLimits {
  uint32_t compilers = 1;                          // processes
  uint32_t compiles_max = 1024;                    // over all sessions
  uint64_t program_bytes_max = uint64_t{4} << 30;  // likewise
  uint64_t session_bytes_max = uint64_t{1} << 30;  // of the programs of one session
  uint64_t lookup_bytes_max =
      uint64_t{64} << 20;  // of programs that are being looked up; one may exceed it alone
  uint64_t large_bytes_min = uint64_t{256} << 10;      // of a large program
  std::chrono::milliseconds compiler_wait_max{30000};  // for a compiler that is down
  std::chrono::milliseconds compile_max{600000};
  bool isolates = false;  // a process compiles for one owner only, and nothing is looked up
  size_t suspects_max = kCompileSuspectsMax;
};

// A large program that has waited this long waits behind no small one.
inline constexpr std::chrono::seconds kAgedAfter{10};
// How long a compile may run on that no session waits for any more.
inline constexpr std::chrono::seconds kUnwantedMax{10};
inline constexpr std::chrono::milliseconds kUnwantedInTheWayMax{500};
inline constexpr std::chrono::seconds kSpareAfter{1};
inline constexpr std::chrono::seconds kSpareIdle{60};
inline constexpr std::chrono::seconds kSpareStartMax{10};  // then compiles no longer wait for it
// A process that has worked this long for one owner makes room for another owner that has none.
inline constexpr std::chrono::seconds kOwnerTurn{2};

struct CompilerEnd {
  uint32_t compiler = 0;
  std::string why;
  bool at_ease = false;  // it has no work, and may end by itself
};

struct CompileActions {
  std::vector<std::pair<uint32_t, wire::CompileRequest>> to_compilers;
  std::vector<std::pair<PendingCompile, wire::Failure>> failed;  // to be answered
  std::vector<CompilerEnd> end_compilers;                        // OnCompilerDown must follow
  std::vector<uint32_t> start_compilers;                         // spares
  std::vector<std::string> notices;                              // for people
};

class CompileQueue {
 public:
  explicit CompileQueue(const CompileLimits& limits)
      : limits_(limits), blame_(limits.suspects_max), processes_(std::max(1u, limits.compilers)) {}

  // Takes a compile whose request has a number of its own, larger than all before. What it refuses is in `failed`.
  void Add(PendingCompile compile, Time now, CompileActions& actions);
  // The compile that `result`, of `compiler`, answers; nothing if it answers none, or only a lookup.
  std::optional<PendingCompile> OnResult(uint32_t compiler, const wire::CompileResult& result,
                                         Time now, CompileActions& actions);
  // The link did not take the request. `again`: the link is ending, and another process is asked; otherwise the compile
  // fails.
  void OnNotSent(uint64_t request, const wire::Failure& failure, bool again, Time now,
                 CompileActions& actions);
  // `compiler`, here and in OnResult: below limits.compilers.
  void OnCompilerUp(uint32_t compiler, Time now, CompileActions& actions);
  void OnCompilerDown(uint32_t compiler, Time now, CompileActions& actions);
  void OnTime(Time now, CompileActions& actions);
  // No session waits for it any more. True: it was still pending.
  bool Forget(uint64_t request, Time now, CompileActions& actions);
  void ForgetSession(SessionId session, Time now, CompileActions& actions);
  // The last session of the owner has ended, and was forgotten: its processes make room for the next owner's.
  void EndOwner(const Owner& owner, Time now, CompileActions& actions);

  std::optional<Time> next_deadline() const;
  bool compiler_up(uint32_t compiler) const { return processes_[compiler].up; }
  size_t size() const { return compiles_.size(); }
  uint64_t program_bytes() const { return program_bytes_; }
  void Explain(SessionId session, Time now, wire::WhyReply& reply) const;

 private:
  enum class State { kQueued, kLookup, kMissed, kRunning };
  struct Entry {
    PendingCompile compile;
    State state = State::kQueued;
    uint32_t compiler = 0;  // of a lookup, or where it runs
    bool unwanted = false;  // only while it runs
    uint64_t bytes() const { return compile.request.program().size(); }
    PendingCompile Answered() const;  // without its program
  };
  struct Process {
    bool up = false;
    bool ending = false;                 // it was told to end
    bool overdue = false;                // a spare that did not start in time
    std::optional<Time> asked_for;       // a spare that starts
    std::optional<uint64_t> running;     // still held by the process, wanted or not
    Time since;                          // since when it runs, or the process has no work
    std::optional<Time> unwanted_since;  // of `running`
    std::optional<Owner> owner;          // that it compiles for, where owners share none
    Time owned_since;
    bool takes() const { return up && !ending; }
    bool free() const { return takes() && !running; }
  };

  void Pump(Time now, CompileActions& actions);
  void Fill(uint32_t compiler, Time now, CompileActions& actions);
  bool MayRun(const Entry& entry, uint32_t compiler, Time now) const;
  bool MayTake(const Entry& entry, uint32_t compiler, Time now) const;
  bool IsForeign(const Entry& entry, uint32_t compiler) const;
  void TakeFromOwners(Time now, CompileActions& actions);
  bool Awaits(const Entry& entry, Time now) const;
  bool MakesRoom(uint32_t compiler, Time now) const;
  void EndAtEase(uint32_t compiler, std::string why, CompileActions& actions);
  int RankOf(const Entry& entry, Time now) const;
  std::optional<uint64_t> TakeTurn(uint32_t compiler, Time now);
  void LookUp(CompileActions& actions);
  void AskForSpares(Time now, CompileActions& actions);
  bool NeedsSpare(uint32_t compiler, Time now) const;
  bool IsLarge(const Entry& entry) const { return entry.bytes() >= limits_.large_bytes_min; }
  bool AnyUp() const;
  void Remove(std::map<uint64_t, Entry>::iterator entry);
  void Drop(std::map<uint64_t, Entry>::iterator entry, Time now);
  void EndRun(Process& process, Time now);
  void Requeue(std::map<uint64_t, Entry>::iterator entry);
  void RefuseWaiting(SessionId session, Time now, CompileActions& actions);
  void End(uint32_t compiler, std::string why, CompileActions& actions);
  std::optional<wire::Failure> CheckRoom(const PendingCompile& compile) const;
  void FailWithoutCompiler(Time now, CompileActions& actions);
  void OnTimeOf(uint32_t compiler, Time now, CompileActions& actions);
  std::optional<Time> DeadlineOf(uint32_t compiler) const;
  std::optional<Time> EaseOf(uint32_t compiler) const;
  bool AllAtWork() const;
  bool AnyWaits() const;
  Time UnwantedUntil(const Process& process) const;
  bool AnySpareUnasked() const;
  void OnRunEnded(const Entry& entry, const wire::CompileResult& result, Time now);
  void FailLate(uint32_t compiler, Time now, CompileActions& actions);

  const CompileLimits limits_;
  CompileBlame blame_;
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
  std::vector<Process> processes_;
  bool ever_up_ = false;  // the first process
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
