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
// library would. kGangs: most programs run over several workers, members fail or are slow, uploads are given up, and
// sessions leave; around them nothing goes wrong, or all as in kAll, more often.
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
  bool plants = false;                 // failures and slow members; see SessionPlan
  bool only_plants = false;            // nothing else goes wrong
  int ops = 30;                        // of a session
  uint64_t elements = 2;               // of a shard
  std::chrono::seconds answer_max{5};  // of every question

  // Nothing fails but mistakes, and what depends on planted failures.
  bool is_calm() const {
    return trouble == Trouble::kNone || trouble == Trouble::kHostile || only_plants;
  }
  static Scenario FromSeed(uint64_t seed, Trouble trouble);
  std::string Text() const;
};

struct Outcome {
  std::vector<std::string> violations;
  std::vector<std::string> faults;
  uint64_t fingerprint = 0;      // equal in every run of a scenario
  uint64_t launches = 0;         // of programs
  uint64_t launched = 0;         // the calls and copies of these
  uint64_t told = 0;             // ends of calls and copies
  uint64_t hostile_batches = 0;  // that the cluster took
  uint64_t releases = 0, compared = 0, answers = 0, calls = 0, copies = 0;
  uint64_t gangs = 0, spanning = 0;  // with collectives of Gangway's own, and over several workers
  uint64_t planted = 0, blamed = 0, slow = 0;  // of Session::Counts
  uint64_t left = 0;                           // sessions
  int stuck_ends = 0;                          // see ProcessesOptions
  std::chrono::nanoseconds longest_failure{};  // where it has a limit
  std::map<int, uint64_t> failed;              // answers, by absl::StatusCode
  std::chrono::nanoseconds longest{};
};

Outcome RunScenario(const Scenario& scenario);

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_SCENARIO_H_
