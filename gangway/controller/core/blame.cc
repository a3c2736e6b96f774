// Implementation of blame.h.
#include "gangway/controller/core/blame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

constexpr size_t kShownDigits = 16;

std::string Shown(const LaunchedProgram& program) {
  return absl::StrCat(program.hash.substr(0, kShownDigits),
                      program.name.empty() ? "" : absl::StrCat(" (", program.name, ")"));
}

std::string NameOf(SessionId session) { return absl::StrCat("session ", session); }

wire::Failure Quarantined(const std::string& what, Time until, Time now) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(until - now);
  return wire::MakeFailure(
      absl::StatusCode::kFailedPrecondition, what,
      absl::StrCat("The workers' logs say how they ended. The quarantine ends in ", left.count(),
                   " s, or when the cluster is restarted (gangway up "
                   "--quarantine)."));
}

}  // namespace

std::vector<std::string> Blame::OnDeath(const std::string& worker,
                                        const std::vector<LaunchedProgramRef>& launches, Time now) {
  std::vector<std::string> notices;
  if (limits_.quarantine_time.count() == 0 || launches.empty()) return notices;
  const auto is_other = [&launches](const LaunchedProgramRef& each) {
    return each->hash != launches[0]->hash;
  };
  if (std::any_of(launches.begin(), launches.end(), is_other)) {
    for (const LaunchedProgramRef& each : launches) {
      if (programs_.CountOf(each->hash, now) == 0)
        programs_.Add(each->hash, now);  // its run alone will tell
      notices.push_back(absl::StrCat("program ", Shown(*each), " of session ", each->session,
                                     " was one of several on ", worker,
                                     " when that ended: its next run is alone"));
    }
    std::sort(notices.begin(), notices.end());
    notices.erase(std::unique(notices.begin(), notices.end()), notices.end());
    return notices;
  }
  const LaunchedProgram& cause = *launches[0];
  const int deaths = programs_.Add(cause.hash, now);
  const bool refused = sessions_.Add(NameOf(cause.session), now) >= limits_.session_deaths_max;
  notices.push_back(absl::StrCat(worker, " ended while it executed program ", Shown(cause),
                                 " of session ", cause.session, " and no other",
                                 deaths >= limits_.program_deaths_max
                                     ? ", again: this program is quarantined"
                                     : ": its next run is alone",
                                 refused ? ", and so are all programs of this session" : ""));
  return notices;
}

std::optional<wire::Failure> Blame::Check(const LaunchedProgram& program, Time now) const {
  if (programs_.empty() && sessions_.empty()) return std::nullopt;
  if (const int deaths = programs_.CountOf(program.hash, now);
      deaths >= limits_.program_deaths_max) {
    return Quarantined(absl::StrCat("program ", Shown(program), " is quarantined: ", deaths,
                                    " workers have ended while they executed it"),
                       programs_.LastOf(program.hash) + limits_.quarantine_time, now);
  }
  const std::string session = NameOf(program.session);
  if (const int deaths = sessions_.CountOf(session, now); deaths >= limits_.session_deaths_max) {
    return Quarantined(absl::StrCat(session, " is quarantined: ", deaths,
                                    " workers have ended while they executed its programs alone"),
                       sessions_.LastOf(session) + limits_.quarantine_time, now);
  }
  return std::nullopt;
}

}  // namespace gangway::controller
