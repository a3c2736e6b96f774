// Many seeds of the whole cluster, for each kind of trouble. GANGWAY_SEEDS=N sets how many of each, GANGWAY_SEED=N
// replays one and tells what happens in it.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/simulation/scenario.h"

namespace gangway::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSeeds = 40;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr uint64_t kSeeds = 40;
#else
constexpr uint64_t kSeeds = 560;
#endif
#else
constexpr uint64_t kSeeds = 560;
#endif

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void Add(const Outcome& outcome, Outcome& total) {
  total.releases += outcome.releases;
  total.hostile_batches += outcome.hostile_batches;
  total.compared += outcome.compared;
  total.answers += outcome.answers;
  total.calls += outcome.calls;
  total.told += outcome.told;
  total.launches += outcome.launches;
  total.launched += outcome.launched;
  total.copies += outcome.copies;
  total.gangs += outcome.gangs;
  total.spanning += outcome.spanning;
  total.planted += outcome.planted;
  total.blamed += outcome.blamed;
  total.slow += outcome.slow;
  total.left += outcome.left;
  total.stuck_ends += outcome.stuck_ends;
  total.longest_failure = std::max(total.longest_failure, outcome.longest_failure);
  if (outcome.spanning != 0) {
    total.faults.insert(total.faults.end(), outcome.faults.begin(), outcome.faults.end());
  }
  for (auto [code, count] : outcome.failed) total.failed[code] += count;
  total.longest = std::max(total.longest, outcome.longest);
}

std::string Text(const Scenario& scenario, const Outcome& outcome) {
  std::string text = absl::StrCat("GANGWAY_SEED=", scenario.seed, ": ", scenario.Text());
  for (const std::string& fault : outcome.faults) absl::StrAppend(&text, "\n  ", fault);
  for (const std::string& violation : outcome.violations) absl::StrAppend(&text, "\n  ", violation);
  return text;
}

std::string Summary(const Outcome& total) {
  std::string codes;
  for (auto [code, count] : total.failed) {
    absl::StrAppend(&codes, " ", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)), " ",
                    count);
  }
  using std::chrono::duration_cast, std::chrono::milliseconds;
  const auto longest = duration_cast<milliseconds>(total.longest);
  const auto failure = duration_cast<std::chrono::microseconds>(total.longest_failure);
  return absl::StrCat(total.calls, " calls, ", total.gangs, " with collectives of our own, ",
                      total.spanning, " of them over workers, beside ", total.faults.size(),
                      " faults; ", total.copies, " copies, ", total.releases, " releases, ",
                      total.compared, " shards compared, ", total.answers,
                      " answers, the last after ", longest.count(), " ms; ", total.planted,
                      " planted failures, in ", total.blamed, " answers, at most ", failure.count(),
                      " us later; ", total.slow, " slow members; ", total.left, " sessions left; ",
                      total.stuck_ends, " workers were stuck; failures:", codes);
}

// The first failing seeds are printed.
Outcome RunSeeds(Trouble trouble) {
  const uint64_t only = Setting("GANGWAY_SEED", 0);
  const uint64_t first = only != 0 ? only : 1;
  const uint64_t last = only != 0 ? only : Setting("GANGWAY_SEEDS", kSeeds);
  spdlog::set_level(only != 0 ? spdlog::level::info : spdlog::level::off);
  Outcome total;
  int failed = 0;
  for (uint64_t seed = first; seed <= last && failed < 3; ++seed) {
    const Scenario scenario = Scenario::FromSeed(seed, trouble);
    const Outcome outcome = RunScenario(scenario);
    Add(outcome, total);
    if (only != 0) std::cout << Text(scenario, outcome) << "\n";
    if (outcome.violations.empty()) continue;
    ++failed;
    ADD_FAILURE() << Text(scenario, outcome);
  }
  std::cout << Summary(total) << "\n";
  return total;
}

bool Failed(const Outcome& total, absl::StatusCode code) {
  return Setting("GANGWAY_SEED", 0) != 0 || total.failed.contains(static_cast<int>(code));
}

class Simulation : public ::testing::TestWithParam<std::pair<Trouble, std::string>> {};

// All checkers run in every test; the tests differ in what goes wrong around the sessions.
TEST_P(Simulation, KeepsItsPromises_GS1_GS4_OB1_OB2_DF3_ER1_ER2) {
  const Trouble trouble = GetParam().first;
  const Outcome total = RunSeeds(trouble);
  if (Setting("GANGWAY_SEED", 0) == 0) {
    EXPECT_GT(total.compared, 100u) << "the seeds did almost no work";
    EXPECT_GT(total.copies, 100u);
    EXPECT_GT(total.told, 100u);
    EXPECT_GT(total.launches, 50u);
    EXPECT_GT(total.launched, 2 * total.launches);
    EXPECT_GT(total.spanning, Setting("GANGWAY_SEEDS", kSeeds) / 2);  // gangs over several workers
  }
  EXPECT_TRUE(Failed(total, absl::StatusCode::kInvalidArgument)) << "no session made mistakes";
  const bool has_limit = trouble == Trouble::kWorkers || trouble == Trouble::kGangs;
  EXPECT_TRUE(!has_limit || Setting("GANGWAY_SEED", 0) != 0 || total.longest_failure.count() > 0)
      << "no failure had a limit";
  if (trouble == Trouble::kHostile) {
    EXPECT_GT(total.hostile_batches, 0u);
  } else if (trouble == Trouble::kGangs && Setting("GANGWAY_SEED", 0) == 0) {
    EXPECT_GT(total.blamed, Setting("GANGWAY_SEEDS", kSeeds));  // answers
    EXPECT_GT(total.slow, Setting("GANGWAY_SEEDS", kSeeds) / 4);
    EXPECT_GT(total.left, Setting("GANGWAY_SEEDS", kSeeds) / 4);
    EXPECT_GT(total.spanning, 2 * Setting("GANGWAY_SEEDS", kSeeds));
    EXPECT_GT(total.faults.size(), 2 * Setting("GANGWAY_SEEDS", kSeeds));
  } else if (trouble == Trouble::kMemory) {
    EXPECT_TRUE(Failed(total, absl::StatusCode::kResourceExhausted)) << "memory was never tight";
  } else if (trouble == Trouble::kLate) {
    EXPECT_TRUE(Failed(total, absl::StatusCode::kDeadlineExceeded)) << "nothing was late";
  } else if (trouble != Trouble::kNone) {
    EXPECT_TRUE(Failed(total, absl::StatusCode::kDataLoss)) << "nothing was ever lost";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Troubles, Simulation,
    ::testing::Values(std::pair(Trouble::kNone, "None"), std::pair(Trouble::kHostile, "Hostile"),
                      std::pair(Trouble::kMemory, "Memory"), std::pair(Trouble::kLate, "Late"),
                      std::pair(Trouble::kWorkers, "Workers"), std::pair(Trouble::kLinks, "Links"),
                      std::pair(Trouble::kKills, "Kills"), std::pair(Trouble::kStops, "Stops"),
                      std::pair(Trouble::kAll, "All"), std::pair(Trouble::kGangs, "Gangs")),
    [](const auto& info) { return info.param.second; });

TEST(SimulationTest, ReplaysExactly) {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Scenario scenario = Scenario::FromSeed(seed, Trouble::kAll);
    EXPECT_EQ(RunScenario(scenario).fingerprint, RunScenario(scenario).fingerprint) << seed;
  }
}

}  // namespace
}  // namespace gangway::simulation
