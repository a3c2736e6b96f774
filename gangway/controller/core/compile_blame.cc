// Implementation of compile_blame.h.
#include "gangway/controller/core/compile_blame.h"

#include <chrono>

#include "absl/strings/str_cat.h"

#include "gangway/base/sha256.h"
#include "gangway/wire/failure.h"
#include "gangway/xla/allowed_options.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

constexpr size_t kShownDigits = 16;

std::string Shown(const std::string& hash) { return hash.substr(0, kShownDigits); }

int64_t SecondsUntil(Time until, Time now) {
  return std::chrono::ceil<std::chrono::seconds>(until - now).count();
}

// Begins the name of each program of this size, and spares most programs the hash.
std::string SizeOf(const wire::CompileRequest& request) {
  return absl::StrCat(request.program().size(), " bytes for ", request.device_count(), ": ");
}

std::string NameOf(const wire::CompileRequest& request, const std::string& hash) {
  return absl::StrCat(SizeOf(request), hash);
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

// The compiler refuses what has no allowed options, so such a program ends nothing.
std::string ProgramHash(const PendingCompile& compile) {
  const wire::CompileRequest& request = compile.request;
  const auto options =
      xla::AllowedOptions(request.options(), {.platform = compile.platform, .flags = ""});
  return Sha256Hex(
      JoinForHash({request.format(), Sha256Hex(request.program()), options.ok() ? *options : "",
                   std::to_string(request.device_count())}));
}

// --- Ends ---

std::string CompileBlame::OnDeath(const PendingCompile& compile, Time began, Time now) {
  OnLimit(compile, now);
  const std::string hash = ProgramHash(compile);
  const std::string name = NameOf(compile.request, hash);
  const Time last = programs_.LastOf(name);
  const bool at_once = began < last || now - last < kOneCause;
  const int ends = at_once ? programs_.CountOf(name, now) : programs_.Add(name, now);
  const bool quarantined = ends >= kProgramEndsMax;
  return absl::StrCat(
      "the compiler ended while it compiled program ", Shown(hash), " of session ", compile.session,
      quarantined ? ", again: this program is quarantined" : "; it will be compiled once more",
      CheckOwner(compile, now)
          ? absl::StrCat("; compiles of ", compile.owner.Text(), " are refused for a time")
          : "");
}

void CompileBlame::OnLimit(const PendingCompile& compile, Time now) {
  owners_.Add(compile.owner.Text(), now);
}

void CompileBlame::OnCompiled(const PendingCompile& compile) {
  if (!programs_.MayKnow(SizeOf(compile.request))) return;
  if (programs_.Erase(NameOf(compile.request, ProgramHash(compile))))
    owners_.TakeBack(compile.owner.Text());
}

// --- What they cost ---

Standing CompileBlame::StandingOf(const PendingCompile& compile, Time now) const {
  if (owners_.empty()) return Standing::kClean;
  const int deaths = owners_.CountOf(compile.owner.Text(), now);
  if (deaths == 0) return Standing::kClean;
  return deaths >= kOwnerEndsLast ? Standing::kLast : Standing::kSuspect;
}

std::optional<wire::Failure> CompileBlame::CheckOwner(const PendingCompile& compile,
                                                      Time now) const {
  if (owners_.empty()) return std::nullopt;
  const std::string owner = compile.owner.Text();
  const int deaths = owners_.CountOf(owner, now);
  const Time until = owners_.LastOf(owner) + kOwnerRefusal;
  if (deaths < kOwnerEndsRefused || now >= until) return std::nullopt;
  return wire::MakeFailure(
      StatusCode::kResourceExhausted,
      absl::StrCat(owner, " may compile nothing for ", SecondsUntil(until, now),
                   " s: its programs ended the compiler process ", deaths,
                   " times, each less than ", kOwnerWindow.count(),
                   " minutes after the one before"),
      "Find the programs that `gangway up` names in its log, and leave them out. What is "
      "compiled already still runs.");
}

std::optional<wire::Failure> CompileBlame::Check(const PendingCompile& compile, Time now) const {
  if (programs_.MayKnow(SizeOf(compile.request))) {
    const std::string hash = ProgramHash(compile);
    const std::string name = NameOf(compile.request, hash);
    const int deaths = programs_.CountOf(name, now);
    if (deaths >= kProgramEndsMax)
      return Quarantined(hash, deaths, programs_.LastOf(name) + kProgramQuarantine, now);
  }
  return CheckOwner(compile, now);
}

}  // namespace gangway::controller
