// Implementation of compile_blame.h.
#include "gangway/controller/core/compile_blame.h"

#include <chrono>

#include "absl/strings/str_cat.h"

#include "gangway/base/sha256.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/compile_options.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr size_t kShownDigits = 16;

std::string Shown(const wire::CompileRequest& request) {
  return ProgramHash(request).substr(0, kShownDigits);
}

int64_t SecondsUntil(Time until, Time now) {
  return std::chrono::ceil<std::chrono::seconds>(until - now).count();
}

std::string NameOf(SessionId session) { return absl::StrCat("session ", session); }

// Begins the name of each program of this size, and spares most programs the hash.
std::string SizeOf(const wire::CompileRequest& request) {
  return absl::StrCat(request.program().size(), " bytes for ", request.device_count(), ": ");
}

std::string NameOf(const wire::CompileRequest& request) {
  return absl::StrCat(SizeOf(request), ProgramHash(request));
}

wire::Failure Quarantined(const wire::CompileRequest& request, int deaths, Time until, Time now) {
  return wire::MakeFailure(
      StatusCode::kFailedPrecondition,
      absl::StrCat("program ", Shown(request), " is quarantined: the compiler process ended ",
                   deaths, " times while it compiled this program"),
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
  const bool quarantined = programs_.Add(NameOf(request), now) >= limits_.deaths_max;
  return absl::StrCat(
      "the compiler ended while it compiled program ", Shown(request), " of session ", session,
      quarantined ? ", again: this program is quarantined" : "; it will be compiled once more",
      CheckSession(session, now) ? "; this session's compiles are refused for a time" : "");
}

void CompileBlame::OnLimit(SessionId session, Time now) { sessions_.Add(NameOf(session), now); }

void CompileBlame::OnCompiled(SessionId session, const wire::CompileRequest& request) {
  if (!programs_.MayKnow(SizeOf(request)) || !programs_.Erase(NameOf(request))) return;
  sessions_.TakeBack(NameOf(session));
}

// --- What they cost ---

Standing CompileBlame::StandingOf(SessionId session, Time now) const {
  if (sessions_.empty()) return Standing::kClean;
  const int deaths = sessions_.CountOf(NameOf(session), now);
  if (deaths == 0) return Standing::kClean;
  return deaths >= limits_.deaths_last ? Standing::kLast : Standing::kSuspect;
}

std::optional<wire::Failure> CompileBlame::CheckSession(SessionId session, Time now) const {
  if (sessions_.empty()) return std::nullopt;
  const std::string name = NameOf(session);
  const int deaths = sessions_.CountOf(name, now);
  const Time until = sessions_.LastOf(name) + limits_.refusal_time;
  if (deaths < limits_.deaths_refused || now >= until) return std::nullopt;
  return wire::MakeFailure(
      StatusCode::kResourceExhausted,
      absl::StrCat(name, " may compile nothing for ", SecondsUntil(until, now),
                   " s: its programs ended the compiler process ", deaths,
                   " times, each less than ", limits_.window.count(),
                   " minutes after the one before"),
      "Find the programs that `gangway up` names in its log, and leave them out. What is "
      "compiled already still runs.");
}

std::optional<wire::Failure> CompileBlame::Check(SessionId session,
                                                 const wire::CompileRequest& request,
                                                 Time now) const {
  if (programs_.MayKnow(SizeOf(request))) {
    const std::string name = NameOf(request);
    const int deaths = programs_.CountOf(name, now);
    if (deaths >= limits_.deaths_max)
      return Quarantined(request, deaths, programs_.LastOf(name) + limits_.quarantine_time, now);
  }
  return CheckSession(session, now);
}

}  // namespace gangway::controller
