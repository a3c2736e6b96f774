// One run of the simulated cluster: its shape, sessions, programs, limits and faults come from a seed, and so does all
// that happens in it. A run is a function of its scenario, so a failing seed replays.
#ifndef GANGWAY_SIMULATION_SCENARIO_H_
#define GANGWAY_SIMULATION_SCENARIO_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gangway/simulation/faults.h"
#include "gangway/simulation/processes.h"

namespace gangway::simulation {

// What goes wrong around the sessions. kLate: bytes of uploads are withheld. kHostile: clients that send what no client
// library would. kGangs: as kAll, more often, and most programs run over several workers.
enum class Trouble {
  kNone,
  kHostile,
  kMemory,
  kLate,
  kWorkers,
  kLinks,
  kKills,
  kStops,
  kAll,
  kGangs
};

struct Scenario {
  uint64_t seed = 0;
  Trouble trouble = Trouble::kNone;
  ProcessesOptions cluster;
  FaultPlan faults;
  int sessions = 1;
  int hostile_clients = 0;
  bool spans = false;                  // programs run over several workers, too
  int ops = 30;                        // of a session
  uint64_t elements = 2;               // of a shard
  std::chrono::seconds answer_max{5};  // of every question

  static Scenario FromSeed(uint64_t seed, Trouble trouble);
  std::string Text() const;
};

struct Outcome {
  std::vector<std::string> violations;
  std::vector<std::string> faults;
  uint64_t fingerprint = 0;      // equal in every run of a scenario
  uint64_t hostile_batches = 0;  // that the cluster took
  uint64_t releases = 0, compared = 0, answers = 0, calls = 0, copies = 0;
  uint64_t gangs = 0, spanning = 0;  // with collectives of Gangway's own, and over several workers
  std::map<int, uint64_t> failed;    // answers, by absl::StatusCode
  std::chrono::nanoseconds longest{};
};

Outcome RunScenario(const Scenario& scenario);

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_SCENARIO_H_
