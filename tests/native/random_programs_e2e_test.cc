// Random programs of several sessions on a real cluster of 2 islands of 2 workers of 2 devices, which
// tests/test_native.py has started: uploads, calls with donation and collectives, copies between all
// workers, views, fetches, drops; with and without killing workers and schedulers. GANGWAY_SEED=N
// GANGWAY_SEEDS=1 replays one seed.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "tests/native/random_session.h"

#include "gangway/cli/json.h"

namespace gangway::e2e {
namespace {

constexpr int kSessions = 3;
constexpr int kOperations = 250;  // per session
constexpr int kShortOperations = 40;

uint64_t Number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomProgramsE2eTest : public ClusterTest {
 protected:
  // Kills a worker or a separate scheduler, by its process id in the status. Does nothing if that
  // process is down or starting.
  void KillOne(uint64_t which) {
    const wire::StatusReply status = Status();
    std::vector<uint64_t> victims;  // 0: not running
    for (const auto& worker : status.workers())
      victims.push_back(worker.state().up() ? worker.state().process_id() : 0);
    for (const auto& scheduler : status.schedulers()) victims.push_back(scheduler.process_id());
    const uint64_t victim = victims.at(which % victims.size());
    if (victim != 0) kill(static_cast<pid_t>(victim), SIGKILL);
  }

  // Kills a process after each `kill_every` operations of all sessions together; 0: never.
  void RunSeed(uint64_t seed, int kill_every) {
    std::atomic<int> operations{0};
    std::atomic<uint64_t> kills{0};
    std::vector<std::unique_ptr<RandomSession>> sessions;
    for (uint64_t i = 0; i < kSessions; ++i) {
      auto client = Open(control_);
      ASSERT_TRUE(client.ok()) << client.status();
      sessions.push_back(
          std::make_unique<RandomSession>(*std::move(client), seed * kSessions + i,
                                          kill_every == 0 ? Trouble::kNone : Trouble::kKills));
    }
    auto step = [&] {
      const int made = ++operations;
      if (kill_every == 0 || made % kill_every != 0) return;
      KillOne(seed + static_cast<uint64_t>(made));
      ++kills;
    };
    std::vector<std::thread> threads;
    for (auto& session : sessions) {
      threads.emplace_back([&session, &step] {
        session->Run(kOperations, step);
        session->Finish();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& session : sessions) {
      compared_count_ += session->compared_count();
      failed_count_ += session->failed_count();
      call_count_ += session->call_count();
      copy_count_ += session->copy_count();
    }
  }

  uint64_t compared_count_ = 0, failed_count_ = 0, call_count_ = 0, copy_count_ = 0;
};

// One seed, which opens the links between workers before resources are counted.
TEST_F(RandomProgramsE2eTest, OpenLinks) { RunSeed(1, 0); }

TEST_F(RandomProgramsE2eTest, EqualTheReference_DF_3) {
  const uint64_t first = Number("GANGWAY_SEED", 1), count = Number("GANGWAY_SEEDS", 20);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) RunSeed(seed, 0);
  EXPECT_GT(compared_count_, 50 * count);
  EXPECT_GT(call_count_, 50 * count);
  EXPECT_GT(copy_count_, 20 * count);
}

TEST_F(RandomProgramsE2eTest, EqualTheReferenceOrNameWhoIsGone_ER_1_ER_2) {
  const uint64_t first = Number("GANGWAY_SEED", 101), count = Number("GANGWAY_SEEDS", 6);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed)
    RunSeed(seed, /*kill_every=*/250);
  EXPECT_GT(compared_count_, 10 * count);
  EXPECT_GT(failed_count_, 0u) << "nothing was lost: were workers killed?";
}

// Short sessions one after the other in each of kSessions threads, until stdin closes; a line of JSON for each, so that
// a test that cuts links sees how long each question took.
TEST_F(RandomProgramsE2eTest, SessionsUntilTheEndOfStdin_TM_1) {
  using std::chrono::steady_clock;
  const uint64_t first = Number("GANGWAY_SEED", 1);
  std::atomic<bool> stop{false};
  Mutex printing;
  auto serve = [&](uint64_t thread) {
    for (uint64_t round = 0; !stop && !HasFailure(); ++round) {
      const auto began = steady_clock::now();
      auto ms_since = [&began] {
        return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - began)
            .count();
      };
      auto client = Open(control_);
      const auto opened_ms = ms_since();
      cli::Json line = {{"thread", thread}, {"opened_ms", opened_ms}};
      if (client.ok()) {
        RandomSession session(*std::move(client), (first + round) * kSessions + thread,
                              Trouble::kCuts);
        session.Run(kShortOperations, [] {});
        session.Finish();
        line.update({{"compared", session.compared_count()},
                     {"failed", session.failed_count()},
                     {"slowest_ms", session.slowest().count()},
                     {"error", session.last_error()}});
      } else {
        line["error"] = std::string(client.status().message());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      line["took_ms"] = ms_since();
      MutexLock lock(printing);
      printf("%s\n", cli::ToText(line).c_str());
      fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(serve, i);
  while (getchar() != EOF) continue;
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gangway::e2e
