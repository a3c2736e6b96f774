// Breaks links and processes of a simulated cluster at random moments.
//
// Threading: Run on one thread of the world, beside the sessions.
#ifndef GANGWAY_SIMULATION_FAULTS_H_
#define GANGWAY_SIMULATION_FAULTS_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {

struct FaultPlan {
  uint64_t seed = 0;
  int count = 0;
  std::chrono::microseconds within{60'000};  // of the beginning
  bool links = false;                        // reset, half reset, silenced, delayed
  bool kills = false;                        // of processes
  bool only_workers = false;                 // are killed or stopped
  bool stops = false;                        // of processes, for a while
};

class Faults {
 public:
  Faults(FaultPlan plan, Processes* processes)
      : plan_(plan), processes_(processes), random_(plan.seed) {}

  void
  Run();  // until the last one is over: what was stopped continues, what was silenced may speak

  // When a process was killed, in order.
  std::vector<Clock::time_point> KillsOf(const std::string& process) const;
  // How long a process has stood still, the stop that it may be in not counted.
  std::chrono::nanoseconds StoppedFor(const std::string& process) const;
  // What it did, for people.
  const std::vector<std::string>& log() const { return log_; }

 private:
  void BreakLink();
  void KillOne();
  void StopOne();
  std::string PickProcess();
  void Note(const std::string& what);

  const FaultPlan plan_;
  Processes* const processes_;
  Random random_;
  std::map<std::string, std::vector<Clock::time_point>> kills_;
  std::map<std::string, std::chrono::nanoseconds> stopped_;
  std::vector<std::string> log_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_FAULTS_H_
