// The compiles of all sessions: which compiler process is asked for which of them, and what its end means. Pure.
//
// CompileBacklog keeps the compiles, CompilerProcesses the processes, and CompileBlame what their ends cost; none of
// them knows another. This class decides which compile goes to which process, and when a process makes room.
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
// and kUnwantedInTheWayMax if others wait and no process is free or about to be there.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/compile_backlog.h"
#include "gangway/controller/core/compile_blame.h"
#include "gangway/controller/core/compile_limits.h"
#include "gangway/controller/core/compiler_processes.h"
#include "gangway/controller/core/pending_compile.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

// A large program that has waited this long waits behind no small one.
inline constexpr std::chrono::seconds kAgedAfter{10};
// How long a compile may run on that no session waits for any more.
inline constexpr std::chrono::seconds kUnwantedMax{10};
inline constexpr std::chrono::milliseconds kUnwantedInTheWayMax{500};
// A spare is asked for when a compile has run this long and no process has room.
inline constexpr std::chrono::seconds kSpareAfter{1};
// A process that has worked this long for one owner makes room for another owner that has none.
inline constexpr std::chrono::seconds kOwnerTurn{2};

struct CompilerEnd {
  uint32_t compiler = 0;
  std::string why;
  bool idle = false;  // it has no work, and may end by itself
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
      : limits_(limits),
        blame_(limits.suspects_max),
        compiles_(limits_),
        processes_(std::max(1u, limits.compilers)) {}
  CompileQueue(const CompileQueue&) = delete;  // its parts refer to its limits
  CompileQueue& operator=(const CompileQueue&) = delete;

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
  bool compiler_up(uint32_t compiler) const { return processes_[compiler].up(); }
  size_t size() const { return compiles_.size(); }
  uint64_t program_bytes() const { return compiles_.program_bytes(); }
  void Explain(SessionId session, Time now, wire::WhyReply& reply) const;

 private:
  using Entry = CompileBacklog::Entry;
  using EntryState = CompileBacklog::State;
  using Process = CompilerProcesses::Process;
  using ProcessState = CompilerProcesses::State;

  // What the processes are asked for.
  void Pump(Time now, CompileActions& actions);
  void Fill(uint32_t compiler, Time now, CompileActions& actions);
  bool MayRun(const Entry& entry, uint32_t compiler, Time now) const;
  bool MayRunIfUnowned(const Entry& entry, uint32_t compiler, Time now) const;
  bool IsForeign(const Entry& entry, uint32_t compiler) const;
  int RankOf(const Entry& entry, Time now) const;
  void LookUp(CompileActions& actions);
  void AskForSpares(Time now, CompileActions& actions);
  bool NeedsSpare(uint32_t compiler, Time now) const;

  // Which processes make room, where owners share none.
  void TakeFromOwners(Time now, CompileActions& actions);
  bool Awaits(const Entry& entry, Time now) const;
  bool MakesRoom(uint32_t compiler, Time now) const;

  // Compiles and processes that end.
  void OnRunEnded(const Entry& entry, const wire::CompileResult& result, Time now);
  void RefuseWaiting(SessionId session, Time now, CompileActions& actions);
  void Drop(CompileBacklog::Iterator entry, Time now);
  void End(uint32_t compiler, std::string why, CompileActions& actions);
  void EndIdle(uint32_t compiler, std::string why, CompileActions& actions);

  // Time.
  std::optional<Time> DeadlineOf(uint32_t compiler) const;
  Time UnwantedUntil(const Process& process) const;
  void OnTimeOf(uint32_t compiler, Time now, CompileActions& actions);
  void FailWithoutCompiler(Time now, CompileActions& actions);
  void FailLate(uint32_t compiler, Time now, CompileActions& actions);

  const CompileLimits limits_;
  CompileBlame blame_;
  CompileBacklog compiles_;
  CompilerProcesses processes_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_QUEUE_H_
