// Which programs and owners have ended compiler processes, and what that costs them. Pure.
//
// A program: the first end may have had another cause, so the program is compiled once more. If the process ends again,
// the program is quarantined: refused for kProgramQuarantine after that end, by its hash, for all sessions.
//
// An owner, by its ends, which are forgotten kOwnerWindow after the last: after the first, its programs are kept away
// from one compiler, which is for all others; after kOwnerEndsLast, they are compiled after everybody's; after
// kOwnerEndsRefused, they are refused until kOwnerRefusal after the last end. A program that is compiled after it had
// ended a process is taken off its owner's count: the end had another cause.
//
// A new controller starts without any counts.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_BLAME_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_BLAME_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "gangway/controller/core/end_counts.h"
#include "gangway/controller/core/pending_compile.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

inline constexpr size_t kCompileSuspectsMax = 256;  // programs, and owners, that are remembered
inline constexpr int kProgramEndsMax = 2;  // of the compiler process, at work on one program
inline constexpr std::chrono::minutes kProgramQuarantine{10};
// Ends that follow the one that counted last so closely may have its cause.
inline constexpr std::chrono::milliseconds kOneCause{10};
inline constexpr int kOwnerEndsLast = 3;     // of one owner's programs
inline constexpr int kOwnerEndsRefused = 5;  // likewise
inline constexpr std::chrono::minutes kOwnerWindow{5};
inline constexpr std::chrono::seconds kOwnerRefusal{60};

enum class Standing { kClean, kSuspect, kLast };

class CompileBlame {
 public:
  explicit CompileBlame(size_t suspects_max)
      : programs_(kProgramQuarantine, suspects_max), owners_(kOwnerWindow, suspects_max) {}

  // The process ended while it compiled this program, which it had begun at that time. Processes that were at work on a
  // program at once and then end count as one for it, and so do ends within kOneCause. They may have one cause, as
  // where a host is cut off: one of its links ends before the other. Returns a line for people.
  std::string OnDeath(const PendingCompile& compile, Time began, Time now);
  // The process is ended because this program passed a limit.
  void OnLimit(const PendingCompile& compile, Time now);
  void OnCompiled(const PendingCompile& compile);

  // Why this program is not compiled now; nothing, if it is.
  std::optional<wire::Failure> Check(const PendingCompile& compile, Time now) const;
  Standing StandingOf(const PendingCompile& compile, Time now) const;

 private:
  std::optional<wire::Failure> CheckOwner(const PendingCompile& compile, Time now) const;

  EndCounts programs_;
  EndCounts owners_;  // by name
};

// Names a program, with its options and device count, for people and for the quarantine: 64 hexadecimal digits. Neither
// the devices that it runs on count, nor options that have no effect (xla/allowed_options.h).
std::string ProgramHash(const PendingCompile& compile);

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_BLAME_H_
