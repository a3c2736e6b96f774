// Implementation of compile_queue.h.
#include "gangway/controller/core/compile_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/base/sha256.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/compile_options.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr size_t kShownDigits = 16;

std::string Shown(const std::string& hash) { return hash.substr(0, kShownDigits); }

wire::Failure Quarantined(const std::string& hash, int deaths, Time until, Time now) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(until - now);
  return wire::MakeFailure(
      StatusCode::kFailedPrecondition,
      absl::StrCat("program ", Shown(hash), " is quarantined: the compiler process ended ", deaths,
                   " times while it compiled this program"),
      absl::StrCat("Change the program or its compile options; the compiler's log says how it "
                   "ended. The quarantine ends in ",
                   left.count(), " s, or when the cluster is restarted."));
}

}  // namespace

std::string ProgramHash(const wire::CompileRequest& request) {
  auto options = xla::CanonicalOptions(request.options());
  return Sha256Hex(JoinForHash({request.format(), Sha256Hex(request.program()),
                                options.ok() ? *options : request.options(),
                                std::to_string(request.device_count())}));
}

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
  if (!failure) failure = CheckQuarantine(compile.request, now);
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
  to_look_up_.push_back(request);
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

// --- What the compiler is asked for ---

void CompileQueue::Pump(Time now, CompileActions& actions) {
  if (!compiler_up_ || ending_) return;
  while (!running_ && !waiting_.empty()) {
    const size_t before = compiles_.size();
    StartNext(now, actions);
    if (!running_ && compiles_.size() == before) break;  // all that wait are being looked up
  }
  LookUp(actions);
}

void CompileQueue::StartNext(Time now, CompileActions& actions) {
  const auto request = TakeTurn();
  if (!request) return;
  auto entry = compiles_.find(*request);
  if (auto failure = CheckQuarantine(entry->second.compile.request, now)) {
    actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
    return Remove(entry);
  }
  entry->second.state = State::kRunning;
  running_ = request;
  unwanted_since_.reset();
  actions.to_compiler.push_back(entry->second.compile.request);
}

// The first compile of the session after the one whose turn was last.
std::optional<uint64_t> CompileQueue::TakeTurn() {
  auto next = waiting_.upper_bound(last_turn_);
  for (size_t i = 0; i < waiting_.size(); ++i, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    std::deque<uint64_t>& own = next->second;
    auto found = std::find_if(own.begin(), own.end(), [this](uint64_t request) {
      return compiles_.at(request).state != State::kLookup;  // its answer is near
    });
    if (found == own.end()) continue;
    const uint64_t request = *found;
    last_turn_ = next->first;
    own.erase(found);
    if (own.empty()) waiting_.erase(next);
    return request;
  }
  return std::nullopt;
}

void CompileQueue::LookUp(CompileActions& actions) {
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
    wire::CompileRequest lookup = entry->second.compile.request;
    lookup.set_lookup_only(true);
    actions.to_compiler.push_back(std::move(lookup));
  }
}

// --- Answers ---

std::optional<PendingCompile> CompileQueue::OnResult(const wire::CompileResult& result, Time now,
                                                     CompileActions& actions) {
  auto entry = compiles_.find(result.request());
  if (entry == compiles_.end()) return std::nullopt;
  std::optional<PendingCompile> answered;
  const State state = entry->second.state;
  if (result.not_cached()) {
    if (state != State::kLookup) return std::nullopt;
    looking_up_bytes_ -= entry->second.bytes();
    entry->second.state = State::kMissed;
  } else {
    if (state == State::kRunning) {
      running_.reset();
      unwanted_since_.reset();
      const wire::CompileRequest& request = entry->second.compile.request;
      if (AnySuspectLike(request)) suspects_.erase(ProgramHash(request));
    }
    if (!entry->second.unwanted) answered = entry->second.Answered();
    Remove(entry);
  }
  Pump(now, actions);
  return answered;
}

void CompileQueue::OnNotSent(uint64_t request, const wire::Failure& failure, bool again, Time now,
                             CompileActions& actions) {
  auto entry = compiles_.find(request);
  if (entry == compiles_.end()) return;
  if (running_ == request) {
    running_.reset();
    unwanted_since_.reset();
  }
  if (entry->second.unwanted) return Remove(entry);
  if (!again) {
    actions.failed.emplace_back(entry->second.Answered(), failure);
    Remove(entry);
    return Pump(now, actions);
  }
  compiler_up_ = false;  // until the next CompilerUp
  if (entry->second.state == State::kLookup) looking_up_bytes_ -= entry->second.bytes();
  if (entry->second.state == State::kRunning)
    waiting_[entry->second.compile.session].push_front(request);
  entry->second.state = State::kMissed;
}

// --- The compiler process ---

void CompileQueue::OnCompilerUp(Time now, CompileActions& actions) {
  compiler_up_ = true;
  ending_ = false;
  Pump(now, actions);
}

// Lookups are not repeated: should one of them have been the cause, it is found alone at its turn.
void CompileQueue::OnCompilerDown(Time now, CompileActions& actions) {
  compiler_up_ = false;
  looking_up_bytes_ = 0;
  for (auto& [request, entry] : compiles_) {
    entry.compile.since = now;
    if (entry.state == State::kLookup) entry.state = State::kMissed;
  }
  if (!running_) return;
  auto entry = compiles_.find(*running_);
  running_.reset();
  unwanted_since_.reset();
  if (!ending_) Blame(entry->second, now, actions);
  auto failure = CheckQuarantine(entry->second.compile.request, now);
  const bool refused = failure.has_value();
  if (refused && !entry->second.unwanted)
    actions.failed.emplace_back(entry->second.Answered(), *std::move(failure));
  if (refused || entry->second.unwanted) return Remove(entry);
  entry->second.state = State::kMissed;
  waiting_[entry->second.compile.session].push_front(entry->first);
}

void CompileQueue::Blame(Entry& entry, Time now, CompileActions& actions) {
  const wire::CompileRequest& request = entry.compile.request;
  const std::string hash = ProgramHash(request);
  ForgetSuspects(now);
  Suspect& suspect = suspects_[hash];
  suspect.program_bytes = request.program().size();
  suspect.device_count = request.device_count();
  suspect.last = now;
  ++suspect.deaths;
  const bool quarantined = suspect.deaths >= limits_.deaths_max;
  actions.notices.push_back(absl::StrCat(
      "the compiler ended while it compiled program ", Shown(hash), " of session ",
      entry.compile.session.number(),
      quarantined ? ", again: this program is quarantined" : "; it will be compiled once more"));
  if (suspects_.size() <= limits_.suspects_max) return;
  suspects_.erase(
      std::min_element(suspects_.begin(), suspects_.end(),
                       [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
}

void CompileQueue::ForgetSuspects(Time now) {
  std::erase_if(suspects_, [&](const auto& entry) {
    return now - entry.second.last >= limits_.quarantine_time;
  });
}

// Spares most programs the hash.
bool CompileQueue::AnySuspectLike(const wire::CompileRequest& request) const {
  return std::any_of(suspects_.begin(), suspects_.end(), [&](const auto& entry) {
    return entry.second.program_bytes == request.program().size() &&
           entry.second.device_count == request.device_count();
  });
}

std::optional<wire::Failure> CompileQueue::CheckQuarantine(const wire::CompileRequest& request,
                                                           Time now) {
  if (suspects_.empty()) return std::nullopt;
  ForgetSuspects(now);
  if (!AnySuspectLike(request)) return std::nullopt;
  auto suspect = suspects_.find(ProgramHash(request));
  if (suspect == suspects_.end() || suspect->second.deaths < limits_.deaths_max)
    return std::nullopt;
  return Quarantined(suspect->first, suspect->second.deaths,
                     suspect->second.last + limits_.quarantine_time, now);
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
  entry->second.unwanted = true;
  unwanted_since_ = now;
}

// --- Time ---

std::optional<Time> CompileQueue::next_deadline() const {
  if (!compiler_up_ && !compiles_.empty())  // the lowest number has waited longest
    return compiles_.begin()->second.compile.since + limits_.compiler_wait_max;
  if (unwanted_since_ && !ending_) return *unwanted_since_ + limits_.unwanted_max;
  return std::nullopt;
}

void CompileQueue::OnTime(Time now, CompileActions& actions) {
  while (!compiler_up_ && !compiles_.empty()) {
    auto first = compiles_.begin();
    if (now < first->second.compile.since + limits_.compiler_wait_max) return;
    if (running_ == first->first) running_.reset();
    actions.failed.emplace_back(
        first->second.Answered(),
        wire::MakeFailure(StatusCode::kUnavailable,
                          absl::StrCat("no compiler process has been up for ",
                                       limits_.compiler_wait_max.count(), " ms"),
                          "See `gangway status`."));
    Remove(first);
  }
  if (!compiler_up_ || !unwanted_since_ || ending_) return;
  if (now < *unwanted_since_ + limits_.unwanted_max) return;
  ending_ = true;
  actions.end_compiler =
      absl::StrCat("it has compiled a program that no session waits for any more for ",
                   limits_.unwanted_max.count(), " ms");
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
    if (compiler_up_) continue;
    wait.set_limit_ms(static_cast<uint64_t>(limits_.compiler_wait_max.count()));
    wait.add_workers("compiler");
  }
}

}  // namespace gangway::controller
