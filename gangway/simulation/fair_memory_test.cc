// A gang that fits into memory waits for the gangs that were released before it on its devices, and little longer,
// whatever other sessions wait for; and what does not fit waits memory_wait_max (30 s), whatever stands before it. The
// real roles, in virtual time. In 30 s, fewer gangs overtake the oldest one that waits than MemoryQueue lets through.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/thread.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/random.h"
#include "gangway/simulation/user.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSeeds = 40;
constexpr uint64_t kBudget = uint64_t{1} << 20;
constexpr uint64_t kHeld = kBudget / 8;    // of its devices, by each hog, which does not let it go
constexpr uint64_t kSmall = kBudget / 64;  // the results of each gang that fits
constexpr int kHogs = 3;
constexpr milliseconds kCost{100};   // of a hog's gang that fits: at most one at a time of each hog
constexpr milliseconds kSlack{200};  // messages
constexpr seconds kMemoryWait{30};

std::string ProgramOf(size_t devices, uint64_t result_bytes, milliseconds cost) {
  return absl::StrCat("sim 1\nname p\npartitions ", devices, "\ncost_us ", cost.count() * 1000,
                      "\ninput 11 1\noutput 11 ", result_bytes / 4, "\n");
}

// Has calls that do not fit as long as it holds what it has, some at once and some after others, and computes.
void Hog(Processes& processes, uint64_t seed, const std::string& name) {
  Random random(seed);
  User user(processes, name);
  const std::vector<Devices> places = {{0}, {1}, {0, 1}};
  const Devices devices = random.Pick(places);
  const ArrayHandle in = user.Make(devices, 4);
  user.Make(devices, kHeld);
  struct Large {
    Clock::time_point asked;
    Ready ready;
  };
  std::vector<Large> large;
  const ExecutableHandle small = user.Compile(ProgramOf(devices.size(), kSmall, kCost), devices);
  std::vector<ExecutableHandle> too_large;
  for (int i = 0; i < 3; ++i) {
    too_large.push_back(user.Compile(
        ProgramOf(devices.size(), random.Between(kBudget - kHeld, kBudget - 4096) & ~3ull,
                  milliseconds(1)),
        devices));
  }
  for (int i = 0; i < 60; ++i) {
    if (i < 10 || random.Percent(10)) {
      const ArrayHandle out = user.client().NewArrayHandle();
      user.client().Call(random.Pick(too_large), {&in, 1}, {&out, 1});
      large.push_back({Clock::now(), user.WhenReady(out)});
    }
    const ArrayHandle out = user.client().NewArrayHandle();
    user.client().Call(small, {&in, 1}, {&out, 1});
    User::Expect(user.WhenReady(out));
    user.client().Drop({&out, 1});
    Answer<bool>().WaitFor(milliseconds(random.Below(1000)));
  }
  for (Large& each : large) {
    const auto limit = each.asked + kMemoryWait + kHogs * kCost + kSlack;
    const auto left = std::chrono::duration_cast<milliseconds>(limit - Clock::now());
    const auto status = each.ready->WaitFor(std::max(left, milliseconds(0)));
    ASSERT_TRUE(status.has_value())
        << name << ": a gang that does not fit was not answered in time";
    EXPECT_EQ(status->code(), absl::StatusCode::kResourceExhausted) << *status;
  }
}

void Modest(Processes& processes, uint32_t device) {
  User user(processes, absl::StrCat("modest", device));
  const ArrayHandle in = user.Make({device}, 4);
  const ExecutableHandle small = user.Compile(ProgramOf(1, kSmall, milliseconds(1)), {device});
  for (int i = 0; i < 60; ++i) {
    const ArrayHandle out = user.client().NewArrayHandle();
    const auto asked = Clock::now();
    user.client().Call(small, {&in, 1}, {&out, 1});
    EXPECT_LE(User::Took(user.WhenReady(out), asked), kHogs * kCost + kSlack);
    user.client().Drop({&out, 1});
    Answer<bool>().WaitFor(milliseconds(600));
  }
}

TEST(FairMemoryTest, AGangThatFitsWaitsForThoseReleasedBeforeItOnly_TM_2) {
  spdlog::set_level(spdlog::level::critical);
  for (uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FiberWorld world(seed);
    const absl::Status ended = world.Run(
        [&] {
          Processes processes(&world, {.islands = {{2}}, .budget_bytes = kBudget});
          ASSERT_TRUE(processes.Start().ok());
          std::vector<std::unique_ptr<Thread>> threads;
          for (int hog = 0; hog < kHogs; ++hog) {
            threads.push_back(std::make_unique<Thread>("hog", [&processes, seed, hog] {
              Hog(processes, Mix(seed) + static_cast<uint64_t>(hog), absl::StrCat("hog", hog));
            }));
          }
          for (uint32_t device : {0u, 1u}) {
            threads.push_back(std::make_unique<Thread>(
                "modest", [&processes, device] { Modest(processes, device); }));
          }
          for (auto& thread : threads) thread->Join();
        },
        std::chrono::hours(1));
    EXPECT_TRUE(ended.ok()) << ended;
  }
}

}  // namespace
}  // namespace gangway::simulation
