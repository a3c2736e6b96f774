// Which programs and sessions have ended worker processes: what XLA runs for a client may crash the process that runs
// it, and everybody's arrays there are lost. Pure.
//
// When a worker dies, each program that its devices had is a suspect. A suspect's next launch runs alone on its
// workers, so that the next death has one cause, and a run that ends well clears it. A suspect that was the only
// program of a worker at its death, and at an earlier one among the programs there, is quarantined: refused for
// `quarantine_time`, by its hash, for all sessions. A session whose programs were the only ones at
// `session_deaths_max` deaths is refused for as long, whatever it launches.
//
// A worker that is killed from outside while a program runs looks the same, so one such death costs the program
// nothing but a launch that runs alone. The lists are bounded and forget the oldest; a new controller starts with empty
// ones.
#ifndef GANGWAY_CONTROLLER_CORE_BLAME_H_
#define GANGWAY_CONTROLLER_CORE_BLAME_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/end_counts.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct BlameLimits {
  std::chrono::milliseconds quarantine_time{600000};  // 0: no program is blamed
  int program_deaths_max = 2;
  int session_deaths_max = 4;
  size_t entries_max = 256;  // of programs, and of sessions
};

// What a launch runs, shared by all launches of an executable.
struct LaunchedProgram {
  std::string hash;  // of the program with its options
  std::string name;  // for people
  SessionId session;
};
using LaunchedProgramRef = std::shared_ptr<const LaunchedProgram>;

class Blame {
 public:
  explicit Blame(const BlameLimits& limits)
      : limits_(limits),
        programs_(limits.quarantine_time, limits.entries_max),
        sessions_(limits.quarantine_time, limits.entries_max) {}

  // The worker, by name, has died; `launches` are those that its devices had. Returns log lines.
  std::vector<std::string> OnDeath(const std::string& worker,
                                   const std::vector<LaunchedProgramRef>& launches, Time now);
  // A launch that ran alone has ended well.
  void OnGoodRun(const LaunchedProgram& program) { programs_.Erase(program.hash); }

  // Whether the next launch is to run alone.
  bool IsSuspect(const LaunchedProgram& program, Time now) const {
    return !programs_.empty() && programs_.CountOf(program.hash, now) > 0;
  }

  // Why the program may not be launched. FAILED_PRECONDITION, with the hash or the session.
  std::optional<wire::Failure> Check(const LaunchedProgram& program, Time now) const;

 private:
  const BlameLimits limits_;
  EndCounts programs_;  // by hash
  EndCounts sessions_;  // by name
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_BLAME_H_
