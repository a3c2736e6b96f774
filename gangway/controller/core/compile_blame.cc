// Implementation of compile_blame.h.
#include "gangway/controller/core/compile_blame.h"

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

int64_t SecondsUntil(Time until, Time now) {
  return std::chrono::ceil<std::chrono::seconds>(until - now).count();
}

wire::Failure Quarantined(const std::string& hash, int deaths, Time until, Time now) {
  return wire::MakeFailure(
      StatusCode::kFailedPrecondition,
      absl::StrCat("program ", Shown(hash), " is quarantined: the compiler process ended ", deaths,
                   " times while it compiled this program"),
      absl::StrCat("Change the program or its compile options; the compiler's log says how it "
                   "ended. The quarantine ends in ",
                   SecondsUntil(until, now), " s, or when the cluster is restarted."));
}

}  // namespace

std::string ProgramHash(const wire::CompileRequest& request) {
  auto options = xla::CanonicalOptions(request.options());
  return Sha256Hex(JoinForHash({request.format(), Sha256Hex(request.program()),
                                options.ok() ? *options : request.options(),
                                std::to_string(request.device_count())}));
}

// --- Ends ---

std::string CompileBlame::OnDeath(SessionId session, const wire::CompileRequest& request,
                                  Time now) {
  OnLimit(session, now);
  const std::string hash = ProgramHash(request);
  Suspect& suspect = suspects_[hash];
  suspect.program_bytes = request.program().size();
  suspect.device_count = request.device_count();
  suspect.last = now;
  ++suspect.deaths;
  const bool quarantined = suspect.deaths >= limits_.deaths_max;
  if (suspects_.size() > limits_.suspects_max) {
    suspects_.erase(std::ranges::min_element(suspects_, {},
                                             [](const auto& entry) { return entry.second.last; }));
  }
  return absl::StrCat(
      "the compiler ended while it compiled program ", Shown(hash), " of session ",
      session.number(),
      quarantined ? ", again: this program is quarantined" : "; it will be compiled once more",
      CheckSession(session, now) ? "; this session's compiles are refused for a time" : "");
}

void CompileBlame::OnLimit(SessionId session, Time now) {
  Forget(now);
  std::deque<Time>& ends = by_sessions_[session];
  ends.push_back(now);
  if (ends.size() > limits_.deaths_refused) ends.pop_front();
  if (by_sessions_.size() <= limits_.suspects_max) return;
  by_sessions_.erase(std::ranges::min_element(
      by_sessions_, {}, [](const auto& entry) { return entry.second.back(); }));
}

void CompileBlame::OnCompiled(SessionId session, const wire::CompileRequest& request) {
  if (!AnySuspectLike(request) || suspects_.erase(ProgramHash(request)) == 0) return;
  auto ends = by_sessions_.find(session);
  if (ends == by_sessions_.end()) return;
  ends->second.pop_back();
  if (ends->second.empty()) by_sessions_.erase(ends);
}

void CompileBlame::Forget(Time now) {
  std::erase_if(suspects_, [&](const auto& entry) {
    return now - entry.second.last >= limits_.quarantine_time;
  });
  std::erase_if(by_sessions_,
                [&](const auto& entry) { return now - entry.second.back() >= limits_.window; });
}

// --- What they cost ---

// Spares most programs the hash.
bool CompileBlame::AnySuspectLike(const wire::CompileRequest& request) const {
  return std::ranges::any_of(suspects_, [&](const auto& entry) {
    return entry.second.program_bytes == request.program().size() &&
           entry.second.device_count == request.device_count();
  });
}

size_t CompileBlame::DeathsOf(SessionId session, Time now) const {
  const auto ends = by_sessions_.find(session);
  if (ends == by_sessions_.end()) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      ends->second, [&](const Time& end) { return now - end < limits_.window; }));
}

Standing CompileBlame::StandingOf(SessionId session, Time now) const {
  const size_t deaths = DeathsOf(session, now);
  if (deaths == 0) return Standing::kClean;
  return deaths >= limits_.deaths_last ? Standing::kLast : Standing::kSuspect;
}

std::optional<wire::Failure> CompileBlame::CheckSession(SessionId session, Time now) const {
  const size_t deaths = DeathsOf(session, now);
  if (deaths < limits_.deaths_refused) return std::nullopt;
  const Time until = by_sessions_.at(session).back() + limits_.refusal_time;
  if (now >= until) return std::nullopt;
  return wire::MakeFailure(
      StatusCode::kResourceExhausted,
      absl::StrCat("session ", session.number(), " may compile nothing for ",
                   SecondsUntil(until, now), " s: its programs ended the compiler process ", deaths,
                   " times within ", limits_.window.count(), " minutes"),
      "Find the programs that `gangway up` names in its log, and leave them out. What is "
      "compiled already still runs.");
}

std::optional<wire::Failure> CompileBlame::Check(SessionId session,
                                                 const wire::CompileRequest& request, Time now) {
  if (suspects_.empty() && by_sessions_.empty()) return std::nullopt;
  Forget(now);
  if (AnySuspectLike(request)) {
    const auto suspect = suspects_.find(ProgramHash(request));
    if (suspect != suspects_.end() && suspect->second.deaths >= limits_.deaths_max)
      return Quarantined(suspect->first, suspect->second.deaths,
                         suspect->second.last + limits_.quarantine_time, now);
  }
  return CheckSession(session, now);
}

}  // namespace gangway::controller
