// Many seeds of the whole cluster; --seeds=N or GANGWAY_SEEDS=N sets how many. --seed=N or
// GANGWAY_SEED=N replays one seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "absl/status/status.h"

#include "gangway/simulation/cluster.h"

namespace gangway::simulation {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define GANGWAY_SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define GANGWAY_SLOW_BUILD 1
#endif
#endif
#ifdef GANGWAY_SLOW_BUILD
uint64_t seed_count = 300;
#else
uint64_t seed_count = 5000;
#endif
uint64_t only_seed = 0;  // 0: all

std::string Replay(const Scenario& scenario) {
  return "seed " + std::to_string(scenario.seed) + (scenario.faults ? ", with faults" : "") +
         ", budget " + std::to_string(scenario.budget_bytes) + " bytes, window " +
         std::to_string(scenario.window) +
         "; replay: simulation_test --seed=" + std::to_string(scenario.seed);
}

// Runs every seed whose scenario is `wanted`; the first failing seeds are printed.
Outcome RunSeeds(bool (*wanted)(const Scenario&)) {
  Outcome total;
  int failed = 0;
  uint64_t first = only_seed != 0 ? only_seed : 1;
  uint64_t last = only_seed != 0 ? only_seed : seed_count;
  for (uint64_t seed = first; seed <= last && failed < 5; ++seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    if (!wanted(scenario)) continue;
    Outcome outcome = RunScenario(scenario);
    total.events += outcome.events;
    total.releases += outcome.releases;
    total.spanning += outcome.spanning;
    total.shards_compared += outcome.shards_compared;
    total.answers += outcome.answers;
    total.workers_lost += outcome.workers_lost;
    total.schedulers_lost += outcome.schedulers_lost;
    total.late_uploads += outcome.late_uploads;
    for (auto [code, count] : outcome.failures) total.failures[code] += count;
    if (only_seed != 0) {
      std::cout << Replay(scenario) << "\n  " << outcome.events << " events, " << outcome.releases
                << " releases, " << outcome.shards_compared << " shards compared, fingerprint "
                << outcome.fingerprint << "\n";
    }
    if (outcome.violations.empty()) continue;
    ++failed;
    std::string text = Replay(scenario);
    for (const std::string& violation : outcome.violations) text += "\n  " + violation;
    ADD_FAILURE() << text;
  }
  return total;
}

void ExpectWork(const Outcome& total) {
  if (only_seed != 0) return;
  EXPECT_GT(total.releases, seed_count) << "the seeds did almost no work";
  EXPECT_GT(total.spanning, seed_count / 10);
  EXPECT_GT(total.shards_compared, seed_count / 10);
  EXPECT_GT(total.answers, seed_count / 10);
}

// All checkers run in every test; the tests differ in what goes wrong around the cores.
TEST(SimulationTest, Calm_GS1_GS4_OB1_OB2_DF3) {
  ExpectWork(RunSeeds([](const Scenario& s) { return !s.faults && s.budget_bytes == 0; }));
}

TEST(SimulationTest, TightMemory_GS1_GS2_GS4_OB1_OB2_DF3) {
  Outcome total = RunSeeds([](const Scenario& s) { return !s.faults && s.budget_bytes != 0; });
  ExpectWork(total);
  if (only_seed == 0) {
    EXPECT_GT(total.failures[static_cast<int>(absl::StatusCode::kResourceExhausted)], 0u)
        << "memory was never tight";
  }
}

TEST(SimulationTest, Faults_GS1_GS2_GS4_OB1_OB2_DF3_ER2_TM1) {
  Outcome total = RunSeeds([](const Scenario& s) { return s.faults; });
  ExpectWork(total);
  if (only_seed == 0) {
    EXPECT_GT(total.workers_lost, seed_count / 10);
    EXPECT_GT(total.schedulers_lost, seed_count / 20);
    EXPECT_GT(total.late_uploads, seed_count / 20) << "too few clients withheld bytes";
    EXPECT_GT(total.failures[static_cast<int>(absl::StatusCode::kDataLoss)], 0u);
    EXPECT_GT(total.failures[static_cast<int>(absl::StatusCode::kDeadlineExceeded)], 0u);
  }
}

TEST(SimulationTest, ReplaysExactly) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    Outcome first = RunScenario(scenario);
    Outcome second = RunScenario(scenario);
    EXPECT_EQ(first.fingerprint, second.fingerprint) << Replay(scenario);
    EXPECT_EQ(first.events, second.events) << Replay(scenario);
    EXPECT_NE(first.fingerprint, 0u);
  }
}

// The checkers can fail: a planted bug is caught within `limit` seeds, by the checker of its
// invariant.
void ExpectCaught(scheduler::PlantedBug bug, const std::string& invariant, uint64_t limit,
                  uint32_t window = 0) {
  for (uint64_t seed = 1; seed <= limit; ++seed) {
    Scenario scenario = Scenario::FromSeed(seed);
    scenario.bug = bug;
    if (window != 0) scenario.window = window;
    for (const std::string& violation : RunScenario(scenario).violations) {
      if (violation.rfind(invariant + ":", 0) == 0) return;
    }
  }
  ADD_FAILURE() << "no violation of " << invariant << " in " << limit << " seeds";
}

TEST(PlantedBugTest, OrderByArrivalIsCaught_GS1) {
  ExpectCaught(scheduler::PlantedBug::kOrderByArrival, "GS-1", 20);
}

// Two collectives span both islands, and each is first on one of them.
TEST(PlantedBugTest, SpanningGangsWithoutASequencerAreCaught_GS1) {
  ExpectCaught(scheduler::PlantedBug::kNoSequencer, "GS-1", 50);
}

TEST(PlantedBugTest, SpanningGangsWithoutASequencerAreCaught_Progress) {
  ExpectCaught(scheduler::PlantedBug::kNoSequencer, "progress", 50);
}

// Three gangs wait in a cycle, one of them local to an island. Rare: it needs a window of 1.
TEST(PlantedBugTest, ATurnThatWaitsForLocalGangsIsCaught) {
  ExpectCaught(scheduler::PlantedBug::kTurnWithoutPriority, "progress", 200, /*window=*/1);
}

TEST(PlantedBugTest, ReleaseWithoutProducersIsCaught_GS4) {
  ExpectCaught(scheduler::PlantedBug::kReleaseWithoutProducers, "GS-4", 20);
}

// An upload waits for bytes that were lost with a worker, until its deadline reveals the bug.
TEST(PlantedBugTest, WaitingForLostBytesIsCaught_TM1) {
  ExpectCaught(scheduler::PlantedBug::kIgnoreDestinations, "TM-1", 200);
}

TEST(PlantedBugTest, AReceiverWithoutPeersIsCaught) {
  ExpectCaught(scheduler::PlantedBug::kForgetPeers, "answers", 20);
}

TEST(PlantedBugTest, WaitingForBytesForEverIsCaught) {
  ExpectCaught(scheduler::PlantedBug::kNoDeadlineOfUploads, "progress", 50);
}

}  // namespace
}  // namespace gangway::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* seed = std::getenv("GANGWAY_SEED"))
    gangway::simulation::only_seed = std::strtoull(seed, nullptr, 10);
  if (const char* seeds = std::getenv("GANGWAY_SEEDS")) {
    gangway::simulation::seed_count = std::strtoull(seeds, nullptr, 10);
  }
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0)
      gangway::simulation::only_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    if (std::strncmp(argv[i], "--seeds=", 8) == 0) {
      gangway::simulation::seed_count = std::strtoull(argv[i] + 8, nullptr, 10);
    }
  }
  return RUN_ALL_TESTS();
}
