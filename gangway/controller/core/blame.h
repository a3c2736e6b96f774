// Which programs and owners have ended worker processes: what XLA runs for a client may crash the
// process that runs it, or hold a device for ever, and everybody's arrays there are lost. Pure.
//
// When a worker dies, each program that its devices had is a suspect. A suspect's next launch runs alone on its
// workers, so that the next death has one cause, and a run that ends well clears it. A suspect that was the only
// program of a worker at its death, and at an earlier one among the programs there, is quarantined: refused for
// `quarantine_time`, by its hash, for all sessions. An owner whose programs were the only ones at kOwnerDeathsMax
// deaths is refused for as long, whatever it launches.
//
// A worker that is killed from outside while a program runs looks the same, so one such death costs the program
// nothing but a launch that runs alone.
//
// A launch that no session waits for any more, and that holds a device until its worker is told to end, is an orphan. A
// script that is stopped in a long step leaves one. So it counts only where another session was open, only against that
// owner's launches of that program (all sessions without a certificate are one owner here), and any run of it that ends
// well clears it. The program is quarantined at kProgramOrphansMax. An owner with a certificate is refused for
// orphans as it is for deaths, since changing a program is easy.
//
// The counts are bounded; a new controller starts without any.
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
#include "gangway/controller/core/owner.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

inline constexpr int kProgramDeathsMax = 2;
inline constexpr int kProgramOrphansMax = 3;
inline constexpr int kOwnerDeathsMax = 4;  // orphans count, too

struct BlameLimits {
  std::chrono::milliseconds quarantine_time{600000};  // 0: no program is blamed
  size_t entries_max = 256;                           // of programs, and of owners
};

// What a launch runs, shared by all launches of an executable.
struct LaunchedProgram {
  std::string hash;  // of the program with its options
  std::string name;  // for people
  SessionId session;
  Owner owner;  // of the session
};
using LaunchedProgramRef = std::shared_ptr<const LaunchedProgram>;

class Blame {
 public:
  explicit Blame(const BlameLimits& limits)
      : limits_(limits),
        programs_(limits.quarantine_time, limits.entries_max),
        orphans_(limits.quarantine_time, limits.entries_max),
        owners_(limits.quarantine_time, limits.entries_max) {}

  // The worker, by name, has died; `launches` are those that its devices had. Returns log lines.
  std::vector<std::string> OnDeath(const std::string& worker,
                                   const std::vector<LaunchedProgramRef>& launches, Time now);
  // The worker, by name, was told to end because of this launch. Returns a log line.
  std::string OnOrphan(const std::string& worker, const LaunchedProgram& program, Time now);
  // A launch has ended well; `alone`: it ran alone.
  void OnGoodRun(const LaunchedProgram& program, bool alone);

  // Whether the next launch is to run alone.
  bool IsSuspect(const LaunchedProgram& program, Time now) const {
    return !programs_.empty() && programs_.CountOf(program.hash, now) > 0;
  }

  // Why the program may not be launched. FAILED_PRECONDITION, with the hash or the owner.
  std::optional<wire::Failure> Check(const LaunchedProgram& program, Time now) const;

 private:
  const BlameLimits limits_;
  EndCounts programs_;  // deaths, by hash
  EndCounts orphans_;   // by owner and hash
  EndCounts owners_;    // deaths and orphans, by name
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_BLAME_H_
