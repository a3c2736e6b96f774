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

wire::Failure Quarantined(const std::string& what, Time until, Time now) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(until - now);
  return wire::MakeFailure(
      absl::StatusCode::kFailedPrecondition, what,
      absl::StrCat("The workers' logs say how they ended. The quarantine ends in ", left.count(),
                   " s, or when the cluster is restarted (gangway up "
                   "--quarantine)."));
}

}  // namespace

template <typename Key>
Blame::Entry& Blame::Count(std::map<Key, Entry>& entries, const Key& key, Time now) {
  if (!entries.contains(key) && entries.size() >= limits_.entries_max) {
    entries.erase(std::min_element(
        entries.begin(), entries.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
  Entry& entry = entries[key];
  entry.last = now;
  return entry;
}

void Blame::Forget(Time now) {
  const auto is_old = [this, now](const auto& entry) {
    return now - entry.second.last >= limits_.quarantine_time;
  };
  std::erase_if(programs_, is_old);
  std::erase_if(sessions_, is_old);
}

std::vector<std::string> Blame::OnDeath(const std::string& worker,
                                        const std::vector<LaunchedProgramRef>& launches, Time now) {
  std::vector<std::string> notices;
  if (limits_.quarantine_time.count() == 0 || launches.empty()) return notices;
  Forget(now);
  const auto is_other = [&launches](const LaunchedProgramRef& each) {
    return each->hash != launches[0]->hash;
  };
  if (std::any_of(launches.begin(), launches.end(), is_other)) {
    for (const LaunchedProgramRef& each : launches) {
      Entry& program = Count(programs_, each->hash, now);
      program.deaths = std::max(program.deaths, 1);  // its run alone will tell
      notices.push_back(absl::StrCat("program ", Shown(*each), " of session ", each->session,
                                     " was one of several on ", worker,
                                     " when that ended: its next run is alone"));
    }
    std::sort(notices.begin(), notices.end());
    notices.erase(std::unique(notices.begin(), notices.end()), notices.end());
    return notices;
  }
  const LaunchedProgram& cause = *launches[0];
  const int deaths = ++Count(programs_, cause.hash, now).deaths;
  const bool refused = ++Count(sessions_, cause.session, now).deaths >= limits_.session_deaths_max;
  notices.push_back(absl::StrCat(worker, " ended while it executed program ", Shown(cause),
                                 " of session ", cause.session, " and no other",
                                 deaths >= limits_.program_deaths_max
                                     ? ", again: this program is quarantined"
                                     : ": its next run is alone",
                                 refused ? ", and so are all programs of this session" : ""));
  return notices;
}

std::optional<wire::Failure> Blame::Check(const LaunchedProgram& program, Time now) {
  if (programs_.empty() && sessions_.empty()) return std::nullopt;
  Forget(now);
  auto entry = programs_.find(program.hash);
  if (entry != programs_.end() && entry->second.deaths >= limits_.program_deaths_max) {
    return Quarantined(
        absl::StrCat("program ", Shown(program), " is quarantined: ", entry->second.deaths,
                     " workers have ended while they executed it"),
        entry->second.last + limits_.quarantine_time, now);
  }
  auto session = sessions_.find(program.session);
  if (session != sessions_.end() && session->second.deaths >= limits_.session_deaths_max) {
    return Quarantined(
        absl::StrCat("session ", program.session, " is quarantined: ", session->second.deaths,
                     " workers have ended while they executed its programs alone"),
        session->second.last + limits_.quarantine_time, now);
  }
  return std::nullopt;
}

}  // namespace gangway::controller
