// A whole cluster in one process, in virtual time, from a seed: the real cores of the controller
// and of the schedulers, simulated workers, compiler and clients, streams that delay and overtake
// each other, faults, and the checkers. A run is a function of its scenario, so a failing seed
// replays.
#ifndef GANGWAY_SIMULATION_CLUSTER_H_
#define GANGWAY_SIMULATION_CLUSTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gangway/scheduler/core/island.h"

namespace gangway::simulation {

struct Scenario {
  uint64_t seed = 0;
  scheduler::PlantedBug bug = scheduler::PlantedBug::kNone;
  bool faults = false;        // workers, schedulers, clients and the compiler are lost
  uint64_t budget_bytes = 0;  // per device; 0 = no limit
  uint32_t window = 16;
  int phases = 2;          // after each, the cluster comes to rest and is checked
  int ops_per_phase = 40;  // per session

  // Faults in 40 % of the seeds, a tight budget in 30 %, a small window in 33 %.
  static Scenario FromSeed(uint64_t seed);
};

struct Outcome {
  std::vector<std::string> violations;
  uint64_t events = 0;
  uint64_t releases = 0;         // of nodes, per island
  uint64_t spanning = 0;         // gangs over both islands that were released
  uint64_t shards_compared = 0;  // with the reference interpreter
  uint64_t answers = 0;
  std::map<int, uint64_t> failures;  // answers that were failures, by absl::StatusCode
  uint64_t workers_lost = 0;
  uint64_t schedulers_lost = 0;
  uint64_t late_uploads = 0;  // uploads that passed their deadline
  uint64_t fingerprint = 0;   // of the releases in order: equal in every run of a scenario
};

Outcome RunScenario(const Scenario& scenario);

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_CLUSTER_H_
