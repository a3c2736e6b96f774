// Implementation of compile_queue.h.
#include "gangway/controller/core/compile_queue.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::controller {

using absl::StatusCode;

// --- Arrival ---

void CompileQueue::Add(PendingCompile compile, Time now, CompileActions& actions) {
  auto failure = compiles_.CheckRoom(compile);
  if (!failure) failure = blame_.Check(compile, now);
  if (failure) {
    actions.failed.emplace_back(std::move(compile), *std::move(failure));
    return;
  }
  compile.since = now;
  compiles_.Add(std::move(compile));
  Pump(now, actions);
}

// --- What the compilers are asked for ---

void CompileQueue::Pump(Time now, CompileActions& actions) {
  for (uint32_t i = 0; i < processes_.count(); ++i) Fill(i, now, actions);
  LookUp(actions);
  AskForSpares(now, actions);
  if (limits_.isolates) TakeFromOwners(now, actions);
}

void CompileQueue::Fill(uint32_t compiler, Time now, CompileActions& actions) {
  Process& process = processes_[compiler];
  while (process.free() && !MakesRoom(compiler, now)) {
    const auto request =
        compiles_.TakeTurn([&](const Entry& entry) { return RankOf(entry, now); },
                           [&](const Entry& entry) { return MayRun(entry, compiler, now); });
    if (!request) return;
    auto entry = compiles_.Find(*request);
    const PendingCompile& compile = entry->second.compile;
    if (auto failure = blame_.Check(compile, now)) {
      actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
      compiles_.Remove(entry);
      continue;
    }
    compiles_.BeginRun(entry, compiler);
    processes_.BeginRun(compiler, *request, now);
    if (limits_.isolates && !process.owner) {
      process.owner = compile.owner;
      process.owned_since = now;
    }
    actions.to_compilers.emplace_back(compiler, compile.request);
  }
}

bool CompileQueue::IsForeign(const Entry& entry, uint32_t compiler) const {
  const std::optional<Owner>& owner = processes_[compiler].owner;
  return owner && *owner != entry.compile.owner;
}

// Whether this process may compile it, if it is free.
bool CompileQueue::MayRun(const Entry& entry, uint32_t compiler, Time now) const {
  return !IsForeign(entry, compiler) && MayRunIfUnowned(entry, compiler, now);
}

// Whether this process may compile it, if it is free and belongs to no other owner. Where a spare does not start, the
// others compile everything.
bool CompileQueue::MayRunIfUnowned(const Entry& entry, uint32_t compiler, Time now) const {
  const size_t usable = processes_.UsableCount();
  if (usable <= 1) return true;
  const SessionId session = entry.compile.session;
  if (compiler == 0 && blame_.StandingOf(entry.compile, now) != Standing::kClean) return false;
  const auto held = std::ranges::count_if(processes_, [&](const Process& process) {
    if (!process.running) return false;
    const Entry& other = compiles_.At(*process.running);
    return other.compile.session == session ||
           (compiles_.IsLarge(entry) && compiles_.IsLarge(other));
  });
  return static_cast<size_t>(held) + 1 < usable;
}

// The lowest goes first.
int CompileQueue::RankOf(const Entry& entry, Time now) const {
  const bool last = blame_.StandingOf(entry.compile, now) == Standing::kLast;
  const bool large = compiles_.IsLarge(entry) && now - entry.compile.since < kAgedAfter;
  return (last ? 2 : 0) + (large ? 1 : 0);
}

void CompileQueue::LookUp(CompileActions& actions) {
  const std::optional<uint32_t> compiler = processes_.ForLookups();
  if (!compiler) return;
  for (auto entry = compiles_.BeginLookup(*compiler); entry != compiles_.all().end();
       entry = compiles_.BeginLookup(*compiler)) {
    wire::CompileRequest lookup = entry->second.compile.request;
    lookup.set_lookup_only(true);
    actions.to_compilers.emplace_back(*compiler, std::move(lookup));
  }
}

// Not before the first process has been up: a cluster that starts needs no second one.
void CompileQueue::AskForSpares(Time now, CompileActions& actions) {
  if (!processes_.ever_up()) return;
  for (uint32_t i = 1; i < processes_.count(); ++i) {
    if (!processes_.MayAskFor(i) || !NeedsSpare(i, now)) continue;
    processes_.AskFor(i, now);
    actions.start_compilers.push_back(i);
  }
}

bool CompileQueue::NeedsSpare(uint32_t compiler, Time now) const {
  for (const auto& [session, own] : compiles_.waiting()) {
    for (const uint64_t request : own) {
      const Entry& entry = compiles_.At(request);
      if (entry.state != EntryState::kLookup && MayRun(entry, compiler, now)) return true;
    }
  }
  if (!processes_.AllAtWork()) return false;
  return std::ranges::any_of(processes_, [&](const Process& process) {
    return process.running && (now >= process.since + kSpareAfter ||
                               compiles_.IsLarge(compiles_.At(*process.running)));
  });
}

// For each program that no process of its owner's, and none that starts, will take, another owner's process without
// work makes room.
void CompileQueue::TakeFromOwners(Time now, CompileActions& actions) {
  for (const auto& [session, own] : compiles_.waiting()) {
    const Entry& entry = compiles_.At(own.front());
    if (Awaits(entry, now)) continue;
    std::optional<uint32_t> longest;
    for (uint32_t i = 0; i < processes_.count(); ++i) {
      const Process& process = processes_[i];
      if (!process.free() || !IsForeign(entry, i) || !MayRunIfUnowned(entry, i, now)) continue;
      if (!longest || process.since < processes_[*longest].since) longest = i;
    }
    if (longest) EndIdle(*longest, "another owner's program needs a compiler", actions);
  }
}

// Whether a process that may compile it will come or become free.
bool CompileQueue::Awaits(const Entry& entry, Time now) const {
  for (uint32_t i = 0; i < processes_.count(); ++i) {
    const Process& process = processes_[i];
    if (process.state == ProcessState::kOverdue || !MayRunIfUnowned(entry, i, now)) continue;
    const bool comes = process.state == ProcessState::kEnding ||
                       process.state == ProcessState::kStarting || (!process.up() && i == 0);
    if (comes || (process.up() && !IsForeign(entry, i))) return true;
  }
  return false;
}

// Whether it takes no other program, since its turn is over.
bool CompileQueue::MakesRoom(uint32_t compiler, Time now) const {
  const Process& process = processes_[compiler];
  if (!process.owner || now - process.owned_since < kOwnerTurn) return false;
  return std::ranges::any_of(compiles_.waiting(), [&](const auto& own) {
    const Entry& entry = compiles_.At(own.second.front());
    return IsForeign(entry, compiler) && MayRunIfUnowned(entry, compiler, now) &&
           !Awaits(entry, now);
  });
}

void CompileQueue::EndIdle(uint32_t compiler, std::string why, CompileActions& actions) {
  processes_[compiler].state = ProcessState::kEnding;
  actions.end_compilers.push_back({.compiler = compiler, .why = std::move(why), .idle = true});
}

// What it still compiles is wanted by no session.
void CompileQueue::EndOwner(const Owner& owner, Time now, CompileActions& actions) {
  for (uint32_t i = 0; i < processes_.count(); ++i) {
    const Process& process = processes_[i];
    if (!process.accepts() || process.owner != owner) continue;
    constexpr char kWhy[] = "the last session of its owner has ended";
    process.running ? End(i, kWhy, actions) : EndIdle(i, kWhy, actions);
  }
  Pump(now, actions);
}

// --- Answers ---

std::optional<PendingCompile> CompileQueue::OnResult(uint32_t compiler,
                                                     const wire::CompileResult& result, Time now,
                                                     CompileActions& actions) {
  if (result.wants_replacement() && processes_[compiler].accepts()) {
    End(compiler,
        result.has_failure() ? "the program that it compiles has passed a limit"
                             : "it kept more memory than it may between compiles",
        actions);
  }
  auto entry = compiles_.Find(result.request());
  if (entry == compiles_.all().end()) return std::nullopt;
  std::optional<PendingCompile> answered;
  const EntryState state = entry->second.state;
  // A process that a program has taken over answers for what it was asked, and for no other session.
  const bool asked = state == EntryState::kLookup || state == EntryState::kRunning;
  if (!asked || entry->second.compiler != compiler) return std::nullopt;
  if (result.not_cached()) {
    if (state != EntryState::kLookup) return std::nullopt;
    compiles_.EndLookup(entry);
  } else {
    if (state == EntryState::kRunning) OnRunEnded(entry->second, result, now);
    if (!entry->second.unwanted) answered = entry->second.Answered();
    compiles_.Remove(entry);
  }
  Pump(now, actions);
  return answered;
}

void CompileQueue::OnRunEnded(const Entry& entry, const wire::CompileResult& result, Time now) {
  const PendingCompile& compile = entry.compile;
  processes_.EndRun(entry.compiler, now);
  if (result.wants_replacement()) return blame_.OnLimit(compile, now);
  blame_.OnCompiled(compile);
}

void CompileQueue::OnNotSent(uint64_t request, const wire::Failure& failure, bool again, Time now,
                             CompileActions& actions) {
  auto entry = compiles_.Find(request);
  if (entry == compiles_.all().end()) return;
  const uint32_t compiler = entry->second.compiler;
  if (processes_[compiler].running == request) processes_.EndRun(compiler, now);
  if (entry->second.unwanted) return compiles_.Remove(entry);
  if (again) {
    processes_.OnLinkEnding(compiler);
    return compiles_.Requeue(entry);
  }
  actions.failed.emplace_back(entry->second.Answered(), failure);
  compiles_.Remove(entry);
  Pump(now, actions);
}

// --- The compiler processes ---

void CompileQueue::OnCompilerUp(uint32_t compiler, Time now, CompileActions& actions) {
  processes_.OnUp(compiler, now);
  Pump(now, actions);
}

void CompileQueue::OnCompilerDown(uint32_t compiler, Time now, CompileActions& actions) {
  const Process ended = processes_.OnDown(compiler, now);
  const bool any_up = processes_.AnyUp();
  for (auto entry = compiles_.all().begin(); entry != compiles_.all().end(); ++entry) {
    if (!any_up) entry->second.compile.since = now;
    if (entry->second.state == EntryState::kLookup && entry->second.compiler == compiler)
      compiles_.Requeue(entry);
  }
  if (ended.running) {
    auto entry = compiles_.Find(*ended.running);
    const PendingCompile& compile = entry->second.compile;
    const SessionId session = compile.session;
    if (ended.state != ProcessState::kEnding)
      actions.notices.push_back(blame_.OnDeath(compile, ended.since, now));
    entry->second.unwanted ? compiles_.Remove(entry) : compiles_.Requeue(entry);
    RefuseWaiting(session, now, actions);
  }
  Pump(now, actions);
}

// Those whose program, or whose session, may not be compiled any more.
void CompileQueue::RefuseWaiting(SessionId session, Time now, CompileActions& actions) {
  const auto own = compiles_.waiting().find(session);
  if (own == compiles_.waiting().end()) return;
  for (const uint64_t request : std::deque<uint64_t>(own->second)) {
    auto entry = compiles_.Find(request);
    auto failure = blame_.Check(entry->second.compile, now);
    if (!failure) continue;
    actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
    compiles_.Remove(entry);
  }
}

void CompileQueue::End(uint32_t compiler, std::string why, CompileActions& actions) {
  processes_[compiler].state = ProcessState::kEnding;
  actions.end_compilers.push_back({.compiler = compiler, .why = std::move(why)});
}

// --- Compiles that no session waits for ---

bool CompileQueue::Forget(uint64_t request, Time now, CompileActions& actions) {
  auto entry = compiles_.Find(request);
  if (entry == compiles_.all().end() || entry->second.unwanted) return false;
  Drop(entry, now);
  Pump(now, actions);
  return true;
}

void CompileQueue::ForgetSession(SessionId session, Time now, CompileActions& actions) {
  for (const uint64_t request : compiles_.OfSession(session)) Drop(compiles_.Find(request), now);
  Pump(now, actions);
}

void CompileQueue::Drop(CompileBacklog::Iterator entry, Time now) {
  if (entry->second.state != EntryState::kRunning) return compiles_.Remove(entry);
  if (std::exchange(entry->second.unwanted, true)) return;
  processes_[entry->second.compiler].unwanted_since = now;
}

// --- Time ---

std::optional<Time> CompileQueue::DeadlineOf(uint32_t compiler) const {
  const Process& process = processes_[compiler];
  if (process.state == ProcessState::kStarting) return *process.asked_for + kSpareStartMax;
  if (!process.accepts()) return std::nullopt;
  if (!process.running) return processes_.IdleEndOf(compiler);
  Time due = process.since + limits_.compile_max;
  if (process.unwanted_since) due = std::min(due, UnwantedUntil(process));
  if (processes_.ever_up() && processes_.AllAtWork() && processes_.AnySpareUnasked())
    due = std::min(due, process.since + kSpareAfter);
  return due;
}

// A client that opens session after session must not hold all compilers with what it left.
Time CompileQueue::UnwantedUntil(const Process& process) const {
  const bool in_the_way =
      !processes_.AnyFree() && !processes_.AnyStarting() && compiles_.AnyWaits();
  return *process.unwanted_since + (in_the_way ? kUnwantedInTheWayMax : kUnwantedMax);
}

std::optional<Time> CompileQueue::next_deadline() const {
  std::optional<Time> next;
  if (compiles_.size() != 0 && !processes_.AnyUp())  // the lowest number has waited longest
    next = compiles_.all().begin()->second.compile.since + limits_.compiler_wait_max;
  for (uint32_t i = 0; i < processes_.count(); ++i) {
    const auto due = DeadlineOf(i);
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

void CompileQueue::OnTime(Time now, CompileActions& actions) {
  FailWithoutCompiler(now, actions);
  for (uint32_t i = 0; i < processes_.count(); ++i) OnTimeOf(i, now, actions);
  AskForSpares(now, actions);
}

void CompileQueue::FailWithoutCompiler(Time now, CompileActions& actions) {
  while (compiles_.size() != 0 && !processes_.AnyUp()) {
    auto first = compiles_.all().begin();
    if (now < first->second.compile.since + limits_.compiler_wait_max) return;
    actions.failed.emplace_back(
        first->second.Answered(),
        wire::MakeFailure(StatusCode::kUnavailable,
                          absl::StrCat("no compiler process has been up for ",
                                       limits_.compiler_wait_max.count(), " ms"),
                          "See `gangway status`."));
    compiles_.Remove(first);
  }
}

void CompileQueue::OnTimeOf(uint32_t compiler, Time now, CompileActions& actions) {
  if (processes_.NoteLateStart(compiler, now)) {
    actions.notices.push_back(absl::StrCat("the spare compiler ", compiler,
                                           " did not start: compiles do not wait for it"));
    return Pump(now, actions);
  }
  const Process& process = processes_[compiler];
  if (!process.accepts()) return;
  if (process.unwanted_since && now >= UnwantedUntil(process)) {
    const auto unwanted =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - *process.unwanted_since);
    End(compiler,
        absl::StrCat("it has compiled a program that no session waits for any more for ",
                     unwanted.count(), " ms"),
        actions);
  } else if (process.running && now >= process.since + limits_.compile_max) {
    FailLate(compiler, now, actions);
  } else if (const auto idle_end = processes_.IdleEndOf(compiler); idle_end && now >= *idle_end) {
    EndIdle(compiler, "the spare compiler had no work", actions);
  }
}

// The compile that this process has run for too long.
void CompileQueue::FailLate(uint32_t compiler, Time now, CompileActions& actions) {
  Entry& entry = compiles_.At(*processes_[compiler].running);
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(limits_.compile_max).count();
  if (!std::exchange(entry.unwanted, true)) {
    actions.failed.emplace_back(
        entry.Answered(),
        wire::MakeFailure(StatusCode::kDeadlineExceeded,
                          absl::StrCat("the program was not compiled within ", limit, " s"),
                          "Make the program smaller, for example with jax.lax.scan for repeated "
                          "layers; `gangway up --compile-limit` sets the limit."));
  }
  blame_.OnLimit(entry.compile, now);
  End(compiler,
      absl::StrCat("it has compiled a program of session ", entry.compile.session.number(), " for ",
                   limit, " s"),
      actions);
}

void CompileQueue::Explain(SessionId session, Time now, wire::WhyReply& reply) const {
  for (const auto& [request, entry] : compiles_.all()) {
    const PendingCompile& compile = entry.compile;
    if (entry.unwanted || (session != SessionId() && compile.session != session)) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind(wire::Wait::KIND_COMPILE);
    wait.set_session(compile.session.number());
    wait.set_reason(wire::Wait::REASON_COMPILE);
    auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - compile.since);
    wait.set_waited_ms(static_cast<uint64_t>(waited.count()));
    if (processes_.AnyUp()) continue;
    wait.set_limit_ms(static_cast<uint64_t>(limits_.compiler_wait_max.count()));
    wait.add_workers("compiler");
  }
}

}  // namespace gangway::controller
