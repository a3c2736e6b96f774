// Implementation of compile_queue.h.
#include "gangway/controller/core/compile_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::controller {

using absl::StatusCode;

PendingCompile CompileQueue::Entry::Answered() const {
  PendingCompile answered;
  answered.session = compile.session;
  answered.handle = compile.handle;
  answered.request.set_request(compile.request.request());
  answered.since = compile.since;
  return answered;
}

// --- Arrival ---

std::optional<wire::Failure> CompileQueue::CheckRoom(const PendingCompile& compile) const {
  if (compiles_.size() >= limits_.compiles_max) {
    return wire::MakeFailure(StatusCode::kResourceExhausted,
                             absl::StrCat(compiles_.size(), " compiles are queued already"),
                             "Try again later.");
  }
  const uint64_t bytes = compile.request.program().size();
  auto own = shares_.find(compile.session);
  if (own != shares_.end() && own->second.program_bytes + bytes > limits_.session_bytes_max) {
    return wire::MakeFailure(
        StatusCode::kResourceExhausted,
        absl::StrCat("programs of ", own->second.program_bytes,
                     " bytes of this session are queued for the ", "compiler, and this one of ",
                     bytes, " would exceed the limit of ", limits_.session_bytes_max),
        "Compile fewer large programs at a time.");
  }
  if (!compiles_.empty() && program_bytes_ + bytes > limits_.program_bytes_max) {
    return wire::MakeFailure(
        StatusCode::kResourceExhausted,
        absl::StrCat("programs of ", program_bytes_, " bytes are queued for the compiler, and ",
                     "this one of ", bytes, " would exceed the limit of ",
                     limits_.program_bytes_max),
        "Try again later.");
  }
  return std::nullopt;
}

void CompileQueue::Add(PendingCompile compile, Time now, CompileActions& actions) {
  auto failure = CheckRoom(compile);
  if (!failure) failure = blame_.Check(compile, now);
  if (failure) {
    actions.failed.emplace_back(std::move(compile), *std::move(failure));
    return;
  }
  compile.since = now;
  const uint64_t request = compile.request.request();
  const uint64_t bytes = compile.request.program().size();
  Share& share = shares_[compile.session];
  ++share.compiles;
  share.program_bytes += bytes;
  program_bytes_ += bytes;
  waiting_[compile.session].push_back(request);
  if (!limits_.isolates) to_look_up_.push_back(request);
  compiles_[request].compile = std::move(compile);
  Pump(now, actions);
}

void CompileQueue::Remove(std::map<uint64_t, Entry>::iterator entry) {
  const PendingCompile& compile = entry->second.compile;
  const uint64_t bytes = entry->second.bytes();
  program_bytes_ -= bytes;
  auto own = shares_.find(compile.session);
  own->second.program_bytes -= bytes;
  if (--own->second.compiles == 0) shares_.erase(own);
  if (entry->second.state == State::kLookup) looking_up_bytes_ -= bytes;
  if (auto waiting = waiting_.find(compile.session); waiting != waiting_.end()) {
    std::erase(waiting->second, entry->first);
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  compiles_.erase(entry);
}

// --- What the compilers are asked for ---

void CompileQueue::Pump(Time now, CompileActions& actions) {
  for (uint32_t i = 0; i < processes_.size(); ++i) Fill(i, now, actions);
  LookUp(actions);
  AskForSpares(now, actions);
  if (limits_.isolates) TakeFromOwners(now, actions);
}

void CompileQueue::Fill(uint32_t compiler, Time now, CompileActions& actions) {
  Process& process = processes_[compiler];
  while (process.free() && !MakesRoom(compiler, now)) {
    const auto request = TakeTurn(compiler, now);
    if (!request) return;
    auto entry = compiles_.find(*request);
    const PendingCompile& compile = entry->second.compile;
    if (auto failure = blame_.Check(compile, now)) {
      actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
      Remove(entry);
      continue;
    }
    entry->second.state = State::kRunning;
    entry->second.compiler = compiler;
    process.running = request;
    if (limits_.isolates && !process.owner) {
      process.owner = compile.owner;
      process.owned_since = now;
    }
    process.since = now;
    process.unwanted_since.reset();
    actions.to_compilers.emplace_back(compiler, compile.request);
  }
}

bool CompileQueue::IsForeign(const Entry& entry, uint32_t compiler) const {
  const std::optional<Owner>& owner = processes_[compiler].owner;
  return owner && *owner != entry.compile.owner;
}

// Whether this process may compile it, if it is free.
bool CompileQueue::MayRun(const Entry& entry, uint32_t compiler, Time now) const {
  return !IsForeign(entry, compiler) && MayTake(entry, compiler, now);
}

// Likewise, if it had compiled for no other owner. Where a spare does not start, the others take all.
bool CompileQueue::MayTake(const Entry& entry, uint32_t compiler, Time now) const {
  const auto usable =
      std::ranges::count_if(processes_, [](const Process& process) { return !process.overdue; });
  if (usable <= 1) return true;
  const SessionId session = entry.compile.session;
  if (compiler == 0 && blame_.StandingOf(entry.compile, now) != Standing::kClean) return false;
  const auto held = std::ranges::count_if(processes_, [&](const Process& process) {
    if (!process.running) return false;
    const Entry& other = compiles_.at(*process.running);
    return other.compile.session == session || (IsLarge(entry) && IsLarge(other));
  });
  return held + 1 < usable;
}

// The lowest goes first.
int CompileQueue::RankOf(const Entry& entry, Time now) const {
  const bool last = blame_.StandingOf(entry.compile, now) == Standing::kLast;
  const bool large = IsLarge(entry) && now - entry.compile.since < kAgedAfter;
  return (last ? 2 : 0) + (large ? 1 : 0);
}

// Of those with the best rank, the first of the session after the one whose turn was last.
std::optional<uint64_t> CompileQueue::TakeTurn(uint32_t compiler, Time now) {
  std::optional<uint64_t> best;
  int best_rank = 0;
  auto next = waiting_.upper_bound(last_turn_);
  for (size_t i = 0; i < waiting_.size(); ++i, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    for (const uint64_t request : next->second) {
      const Entry& entry = compiles_.at(request);
      if (entry.state == State::kLookup) continue;  // its answer is near
      const int rank = RankOf(entry, now);
      if ((best && rank >= best_rank) || !MayRun(entry, compiler, now)) continue;
      best = request;
      best_rank = rank;
    }
  }
  if (!best) return std::nullopt;
  last_turn_ = compiles_.at(*best).compile.session;
  auto own = waiting_.find(last_turn_);
  std::erase(own->second, *best);
  if (own->second.empty()) waiting_.erase(own);
  return best;
}

// By a process without work, if there is one: another may stand still.
void CompileQueue::LookUp(CompileActions& actions) {
  auto process = std::ranges::find_if(processes_, &Process::free);
  if (process == processes_.end()) process = std::ranges::find_if(processes_, &Process::takes);
  if (process == processes_.end()) return;
  const auto compiler = static_cast<uint32_t>(process - processes_.begin());
  while (!to_look_up_.empty()) {
    auto entry = compiles_.find(to_look_up_.front());
    if (entry == compiles_.end() || entry->second.state != State::kQueued) {
      to_look_up_.pop_front();
      continue;
    }
    const uint64_t bytes = entry->second.bytes();
    if (looking_up_bytes_ > 0 && looking_up_bytes_ + bytes > limits_.lookup_bytes_max) return;
    to_look_up_.pop_front();
    looking_up_bytes_ += bytes;
    entry->second.state = State::kLookup;
    entry->second.compiler = compiler;
    wire::CompileRequest lookup = entry->second.compile.request;
    lookup.set_lookup_only(true);
    actions.to_compilers.emplace_back(compiler, std::move(lookup));
  }
}

// Not before the first process has been up: a cluster that starts needs no second one.
void CompileQueue::AskForSpares(Time now, CompileActions& actions) {
  if (!ever_up_) return;
  for (uint32_t i = 1; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (process.up || process.asked_for || !NeedsSpare(i, now)) continue;
    process.asked_for = now;
    actions.start_compilers.push_back(i);
  }
}

bool CompileQueue::NeedsSpare(uint32_t compiler, Time now) const {
  for (const auto& [session, own] : waiting_) {
    for (const uint64_t request : own) {
      const Entry& entry = compiles_.at(request);
      if (entry.state != State::kLookup && MayRun(entry, compiler, now)) return true;
    }
  }
  if (!AllAtWork()) return false;
  return std::ranges::any_of(processes_, [&](const Process& process) {
    return process.running &&
           (now >= process.since + kSpareAfter || IsLarge(compiles_.at(*process.running)));
  });
}

// For each program that no process of its owner's, and none that starts, will take, another owner's process without
// work makes room.
void CompileQueue::TakeFromOwners(Time now, CompileActions& actions) {
  for (const auto& [session, own] : waiting_) {
    const Entry& entry = compiles_.at(own.front());
    if (Awaits(entry, now)) continue;
    std::optional<uint32_t> longest;
    for (uint32_t i = 0; i < processes_.size(); ++i) {
      const Process& process = processes_[i];
      if (!process.free() || !IsForeign(entry, i) || !MayTake(entry, i, now)) continue;
      if (!longest || process.since < processes_[*longest].since) longest = i;
    }
    if (longest) EndAtEase(*longest, "another owner's program needs a compiler", actions);
  }
}

// Whether a process that may compile it will come or become free.
bool CompileQueue::Awaits(const Entry& entry, Time now) const {
  for (uint32_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (process.overdue || !MayTake(entry, i, now)) continue;
    const bool comes = process.ending || (!process.up && (i == 0 || process.asked_for));
    if (comes || (process.up && !IsForeign(entry, i))) return true;
  }
  return false;
}

// Whether it takes no other program, since its turn is over.
bool CompileQueue::MakesRoom(uint32_t compiler, Time now) const {
  const Process& process = processes_[compiler];
  if (!process.owner || now - process.owned_since < kOwnerTurn) return false;
  return std::ranges::any_of(waiting_, [&](const auto& own) {
    const Entry& entry = compiles_.at(own.second.front());
    return IsForeign(entry, compiler) && MayTake(entry, compiler, now) && !Awaits(entry, now);
  });
}

void CompileQueue::EndAtEase(uint32_t compiler, std::string why, CompileActions& actions) {
  processes_[compiler].ending = true;
  actions.end_compilers.push_back({.compiler = compiler, .why = std::move(why), .at_ease = true});
}

// What it still compiles is wanted by no session.
void CompileQueue::EndOwner(const Owner& owner, Time now, CompileActions& actions) {
  for (uint32_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (!process.takes() || process.owner != owner) continue;
    constexpr char kWhy[] = "the last session of its owner has ended";
    process.running ? End(i, kWhy, actions) : EndAtEase(i, kWhy, actions);
  }
  Pump(now, actions);
}

// No process has room, or starts.
bool CompileQueue::AllAtWork() const {
  return std::ranges::none_of(processes_, [](const Process& process) {
    return process.free() || (process.asked_for && !process.overdue);
  });
}

bool CompileQueue::AnySpareUnasked() const {
  return std::any_of(processes_.begin() + 1, processes_.end(),
                     [](const Process& process) { return !process.up && !process.asked_for; });
}

// --- Answers ---

std::optional<PendingCompile> CompileQueue::OnResult(uint32_t compiler,
                                                     const wire::CompileResult& result, Time now,
                                                     CompileActions& actions) {
  if (result.wants_replacement() && processes_[compiler].takes()) {
    End(compiler,
        result.has_failure() ? "the program that it compiles has passed a limit"
                             : "it kept more memory than it may between compiles",
        actions);
  }
  auto entry = compiles_.find(result.request());
  if (entry == compiles_.end()) return std::nullopt;
  std::optional<PendingCompile> answered;
  const State state = entry->second.state;
  // A process that a program has taken over answers for what it was asked, and for no other session.
  const bool asked = state == State::kLookup || state == State::kRunning;
  if (!asked || entry->second.compiler != compiler) return std::nullopt;
  if (result.not_cached()) {
    if (state != State::kLookup) return std::nullopt;
    looking_up_bytes_ -= entry->second.bytes();
    entry->second.state = State::kMissed;
  } else {
    if (state == State::kRunning) OnRunEnded(entry->second, result, now);
    if (!entry->second.unwanted) answered = entry->second.Answered();
    Remove(entry);
  }
  Pump(now, actions);
  return answered;
}

void CompileQueue::OnRunEnded(const Entry& entry, const wire::CompileResult& result, Time now) {
  const PendingCompile& compile = entry.compile;
  EndRun(processes_[entry.compiler], now);
  if (result.wants_replacement()) return blame_.OnLimit(compile, now);
  blame_.OnCompiled(compile);
}

void CompileQueue::OnNotSent(uint64_t request, const wire::Failure& failure, bool again, Time now,
                             CompileActions& actions) {
  auto entry = compiles_.find(request);
  if (entry == compiles_.end()) return;
  Process& process = processes_[entry->second.compiler];
  if (process.running == request) EndRun(process, now);
  if (entry->second.unwanted) return Remove(entry);
  if (again) {
    process.up = false;  // until the next OnCompilerUp
    return Requeue(entry);
  }
  actions.failed.emplace_back(entry->second.Answered(), failure);
  Remove(entry);
  Pump(now, actions);
}

// --- The compiler processes ---

void CompileQueue::EndRun(Process& process, Time now) {
  process.running.reset();
  process.unwanted_since.reset();
  process.since = now;
}

// Lookups are not repeated: should one of them have been the cause, it is found alone at its turn.
void CompileQueue::Requeue(std::map<uint64_t, Entry>::iterator entry) {
  if (entry->second.state == State::kLookup) looking_up_bytes_ -= entry->second.bytes();
  if (entry->second.state == State::kRunning)
    waiting_[entry->second.compile.session].push_front(entry->first);
  entry->second.state = State::kMissed;
}

bool CompileQueue::AnyUp() const { return std::ranges::any_of(processes_, &Process::up); }

void CompileQueue::OnCompilerUp(uint32_t compiler, Time now, CompileActions& actions) {
  processes_[compiler] = {.up = true, .since = now};
  ever_up_ |= compiler == 0;
  Pump(now, actions);
}

void CompileQueue::OnCompilerDown(uint32_t compiler, Time now, CompileActions& actions) {
  const Process ended = std::exchange(processes_[compiler], Process{.since = now});
  const bool any_up = AnyUp();
  for (auto entry = compiles_.begin(); entry != compiles_.end(); ++entry) {
    if (!any_up) entry->second.compile.since = now;
    if (entry->second.state == State::kLookup && entry->second.compiler == compiler) Requeue(entry);
  }
  if (ended.running) {
    auto entry = compiles_.find(*ended.running);
    const PendingCompile& compile = entry->second.compile;
    const SessionId session = compile.session;
    if (!ended.ending) actions.notices.push_back(blame_.OnDeath(compile, now));
    entry->second.unwanted ? Remove(entry) : Requeue(entry);
    RefuseWaiting(session, now, actions);
  }
  Pump(now, actions);
}

// Those whose program, or whose session, may not be compiled any more.
void CompileQueue::RefuseWaiting(SessionId session, Time now, CompileActions& actions) {
  const auto own = waiting_.find(session);
  if (own == waiting_.end()) return;
  for (const uint64_t request : std::deque<uint64_t>(own->second)) {
    auto entry = compiles_.find(request);
    auto failure = blame_.Check(entry->second.compile, now);
    if (!failure) continue;
    actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
    Remove(entry);
  }
}

void CompileQueue::End(uint32_t compiler, std::string why, CompileActions& actions) {
  processes_[compiler].ending = true;
  actions.end_compilers.push_back({.compiler = compiler, .why = std::move(why)});
}

// --- Compiles that no session waits for ---

bool CompileQueue::Forget(uint64_t request, Time now, CompileActions& actions) {
  auto entry = compiles_.find(request);
  if (entry == compiles_.end() || entry->second.unwanted) return false;
  Drop(entry, now);
  Pump(now, actions);
  return true;
}

void CompileQueue::ForgetSession(SessionId session, Time now, CompileActions& actions) {
  std::vector<uint64_t> own;
  for (const auto& [request, entry] : compiles_) {
    if (entry.compile.session == session) own.push_back(request);
  }
  for (uint64_t request : own) Drop(compiles_.find(request), now);
  Pump(now, actions);
}

void CompileQueue::Drop(std::map<uint64_t, Entry>::iterator entry, Time now) {
  if (entry->second.state != State::kRunning) return Remove(entry);
  if (std::exchange(entry->second.unwanted, true)) return;
  processes_[entry->second.compiler].unwanted_since = now;
}

// --- Time ---

std::optional<Time> CompileQueue::DeadlineOf(uint32_t compiler) const {
  const Process& process = processes_[compiler];
  if (!process.up && process.asked_for && !process.overdue)
    return *process.asked_for + kSpareStartMax;
  if (!process.takes()) return std::nullopt;
  if (!process.running) return EaseOf(compiler);
  Time due = process.since + limits_.compile_max;
  if (process.unwanted_since) due = std::min(due, UnwantedUntil(process));
  if (ever_up_ && AllAtWork() && AnySpareUnasked())
    due = std::min(due, process.since + kSpareAfter);
  return due;
}

bool CompileQueue::AnyWaits() const {
  return std::ranges::any_of(waiting_, [this](const auto& own) {
    return std::ranges::any_of(own.second, [this](uint64_t request) {
      return compiles_.at(request).state != State::kLookup;
    });
  });
}

// A client that opens session after session must not hold all compilers with what it left.
Time CompileQueue::UnwantedUntil(const Process& process) const {
  const bool in_the_way = std::ranges::none_of(processes_, &Process::free) && AnyWaits();
  return *process.unwanted_since + (in_the_way ? kUnwantedInTheWayMax : kUnwantedMax);
}

// When a spare without work ends. It stays while no other process is free.
std::optional<Time> CompileQueue::EaseOf(uint32_t compiler) const {
  const Process& process = processes_[compiler];
  const auto free = std::ranges::count_if(processes_, &Process::free);
  if (compiler == 0 || !process.free() || free < 2) return std::nullopt;
  return process.since + kSpareIdle;
}

std::optional<Time> CompileQueue::next_deadline() const {
  std::optional<Time> next;
  if (!compiles_.empty() && !AnyUp())  // the lowest number has waited longest
    next = compiles_.begin()->second.compile.since + limits_.compiler_wait_max;
  for (uint32_t i = 0; i < processes_.size(); ++i) {
    const auto due = DeadlineOf(i);
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

void CompileQueue::OnTime(Time now, CompileActions& actions) {
  FailWithoutCompiler(now, actions);
  for (uint32_t i = 0; i < processes_.size(); ++i) OnTimeOf(i, now, actions);
  AskForSpares(now, actions);
}

void CompileQueue::FailWithoutCompiler(Time now, CompileActions& actions) {
  while (!compiles_.empty() && !AnyUp()) {
    auto first = compiles_.begin();
    if (now < first->second.compile.since + limits_.compiler_wait_max) return;
    actions.failed.emplace_back(
        first->second.Answered(),
        wire::MakeFailure(StatusCode::kUnavailable,
                          absl::StrCat("no compiler process has been up for ",
                                       limits_.compiler_wait_max.count(), " ms"),
                          "See `gangway status`."));
    Remove(first);
  }
}

void CompileQueue::OnTimeOf(uint32_t compiler, Time now, CompileActions& actions) {
  Process& process = processes_[compiler];
  if (!process.up && process.asked_for) {
    if (process.overdue && now >= *process.asked_for + kSpareIdle)
      process.asked_for.reset();  // it may be asked for again
    if (process.overdue || now < *process.asked_for + kSpareStartMax) return;
    process.overdue = true;
    actions.notices.push_back(absl::StrCat("the spare compiler ", compiler,
                                           " did not start: compiles do not wait for it"));
    return Pump(now, actions);
  }
  if (!process.takes()) return;
  if (process.unwanted_since && now >= UnwantedUntil(process)) {
    const auto unwanted =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - *process.unwanted_since);
    End(compiler,
        absl::StrCat("it has compiled a program that no session waits for any more for ",
                     unwanted.count(), " ms"),
        actions);
  } else if (process.running && now >= process.since + limits_.compile_max) {
    FailLate(compiler, now, actions);
  } else if (const auto ease = EaseOf(compiler); ease && now >= *ease) {
    EndAtEase(compiler, "the spare compiler had no work", actions);
  }
}

// The compile that this process has run for too long.
void CompileQueue::FailLate(uint32_t compiler, Time now, CompileActions& actions) {
  Entry& entry = compiles_.at(*processes_[compiler].running);
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
  for (const auto& [request, entry] : compiles_) {
    const PendingCompile& compile = entry.compile;
    if (entry.unwanted || (session != SessionId() && compile.session != session)) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind("compile");
    wait.set_session(compile.session.number());
    wait.set_reason(wire::Wait::REASON_COMPILE);
    auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - compile.since);
    wait.set_waited_ms(static_cast<uint64_t>(waited.count()));
    if (AnyUp()) continue;
    wait.set_limit_ms(static_cast<uint64_t>(limits_.compiler_wait_max.count()));
    wait.add_workers("compiler");
  }
}

}  // namespace gangway::controller
