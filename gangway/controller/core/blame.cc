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

// What an orphan is counted as.
std::string OrphanOf(const LaunchedProgram& program) {
  return absl::StrCat(program.hash, program.owner.has_certificate()
                                        ? absl::StrCat(" of ", program.owner.Text())
                                        : "");
}

wire::Failure Quarantined(const std::string& what, const std::string& advice, Time until,
                          Time now) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(until - now);
  return wire::MakeFailure(
      absl::StatusCode::kFailedPrecondition, what,
      absl::StrCat(advice, " The quarantine ends in ", left.count(),
                   " s, or when the cluster is restarted (gangway up --quarantine)."));
}

constexpr char kSeeLogs[] = "The workers' logs say how they ended.";
constexpr char kLetItEnd[] =
    "Let it end before you end its script, or give its loop a limit; a run that ends clears it.";

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
  const bool refused = owners_.Add(cause.owner.Text(), now) >= kOwnerDeathsMax;
  notices.push_back(absl::StrCat(
      worker, " ended while it executed program ", Shown(cause), " of session ", cause.session,
      " and no other",
      deaths >= kProgramDeathsMax ? ", again: this program is quarantined"
                                  : ": its next run is alone",
      refused ? absl::StrCat(", and so is all that ", cause.owner.Text(), " runs") : ""));
  return notices;
}

std::string Blame::OnOrphan(const std::string& worker, const LaunchedProgram& program, Time now) {
  const bool is_quarantined = orphans_.Add(OrphanOf(program), now) >= kProgramOrphansMax;
  const bool is_refused =
      program.owner.has_certificate() && owners_.Add(program.owner.Text(), now) >= kOwnerDeathsMax;
  return absl::StrCat(
      worker, " was restarted because of program ", Shown(program), " of session ", program.session,
      ", which no session waited for", is_quarantined ? ", again: this program is quarantined" : "",
      is_refused ? absl::StrCat(", and all that ", program.owner.Text(), " runs is refused") : "");
}

void Blame::OnGoodRun(const LaunchedProgram& program, bool alone) {
  if (alone) programs_.Erase(program.hash);
  if (!orphans_.empty()) orphans_.Erase(OrphanOf(program));
}

std::optional<wire::Failure> Blame::Check(const LaunchedProgram& program, Time now) const {
  if (programs_.empty() && orphans_.empty() && owners_.empty()) return std::nullopt;
  if (const int deaths = programs_.CountOf(program.hash, now); deaths >= kProgramDeathsMax) {
    return Quarantined(absl::StrCat("program ", Shown(program), " is quarantined: ", deaths,
                                    " workers have ended while they executed it"),
                       kSeeLogs, programs_.LastOf(program.hash) + limits_.quarantine_time, now);
  }
  const std::string orphan = OrphanOf(program);
  if (const int ends = orphans_.CountOf(orphan, now); ends >= kProgramOrphansMax) {
    return Quarantined(
        absl::StrCat("program ", Shown(program), " is quarantined: ", ends,
                     " workers were restarted because it held a device and no session waited for "
                     "it any more"),
        kLetItEnd, orphans_.LastOf(orphan) + limits_.quarantine_time, now);
  }
  const std::string owner = program.owner.Text();
  if (const int deaths = owners_.CountOf(owner, now); deaths >= kOwnerDeathsMax) {
    return Quarantined(absl::StrCat(owner, " is quarantined: ", deaths,
                                    " workers have ended because of its programs alone"),
                       kSeeLogs, owners_.LastOf(owner) + limits_.quarantine_time, now);
  }
  return std::nullopt;
}

}  // namespace gangway::controller
