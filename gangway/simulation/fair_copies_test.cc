// One session's large transfers delay another's small ones by a few slices: on a slow network, in virtual time.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/nightly_test_util.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/user.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBytesPerSecond = 16 * kMiB;  // of each link
constexpr milliseconds kSlice{1000 / 16};        // of 1 MiB
// What a stream queues (4 MiB) and the network holds (4 MiB), a slice of each other shard, and the messages.
constexpr milliseconds kFewSlices = 14 * kSlice;
const int kSeeds = IsNightly() ? 5 : 3;

// Two workers of eight devices: 0 to 7 and 8 to 15.
void OnSlowNetwork(const std::function<void(Processes&)>& run) {
  spdlog::set_level(spdlog::level::critical);
  for (int seed = 1; seed <= kSeeds; ++seed) {
    FiberWorld world(static_cast<uint64_t>(seed));
    const absl::Status ended = world.Run(
        [&] {
          ProcessesOptions options{.islands = {{8, 8}}};
          options.network.bytes_per_second = kBytesPerSecond;
          Processes processes(&world, options);
          ASSERT_TRUE(processes.Start().ok());
          run(processes);
        },
        std::chrono::hours(1));
    EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
  }
}

const Devices kHere = {0, 1, 2, 3, 4, 5, 6, 7};
const Devices kThere = {8, 9, 10, 11, 12, 13, 14, 15};

void ExpectSmallCopiesBesideLarge(const Devices& from, const Devices& to, uint64_t large_bytes) {
  OnSlowNetwork([&](Processes& processes) {
    User large(processes, "large"), small(processes, "small");
    const ArrayHandle much = large.Make(from, large_bytes);
    const ArrayHandle little = small.Make({0}, 4096);
    const auto began = Clock::now();
    const Ready all = large.Copy(much, to);
    Answer<bool>().WaitFor(2 * kSlice);  // it is under way
    for (int i = 0; i < 4; ++i) {
      const auto asked = Clock::now();
      EXPECT_LT(User::Took(small.Copy(little, {8}), asked), kFewSlices);
    }
    EXPECT_GT(User::Took(all, began), 2 * kFewSlices) << "it was large";
  });
}

// More shards than take turns: they held all of a stream's turns until one of them ended.
TEST(FairCopies, ACopyOfManyLargeShardsDelaysAnotherSessionsByAFewSlices) {
  ExpectSmallCopiesBesideLarge(kHere, kThere, 8 * kMiB);
}

// More than may be read at a time: it held the memory of all shards until it was sent.
TEST(FairCopies, ACopyOfAHugeShardDelaysAnotherSessionsByAFewSlices) {
  ExpectSmallCopiesBesideLarge({0}, {8}, 264 * kMiB);
}

TEST(FairCopies, FetchesAndUploadsDelayThoseOfOthersByAFewSlices) {
  OnSlowNetwork([](Processes& processes) {
    User large(processes, "large"), small(processes, "small");
    const ArrayHandle much = large.Make(kHere, 4 * kMiB);
    const ArrayHandle little = small.Make({0}, 4096);
    const Ready all = large.Fetch(much, {0, 1, 2, 3, 4, 5, 6, 7});
    Thread upload("upload", [&] { large.Make(kHere, 4 * kMiB); });
    Answer<bool>().WaitFor(2 * kSlice);
    for (int i = 0; i < 4; ++i) {
      auto asked = Clock::now();
      EXPECT_LT(User::Took(small.Fetch(little, {0}), asked), 3 * kSlice);
      asked = Clock::now();
      small.Make({0}, 4096);
      EXPECT_LT(Clock::now() - asked, 3 * kSlice);
    }
    User::Expect(all);
    upload.Join();
  });
}

TEST(FairCopies, ASmallFetchWaitsForAFewSlicesOfItsOwnSessionsLargeOnes) {
  OnSlowNetwork([](Processes& processes) {
    User user(processes, "user");
    const ArrayHandle much = user.Make(kHere, 8 * kMiB);
    const ArrayHandle little = user.Make({0}, 4096);
    const auto began = Clock::now();
    const Ready all = user.Fetch(much, {0, 1, 2, 3, 4, 5, 6, 7});
    Answer<bool>().WaitFor(2 * kSlice);
    const auto asked = Clock::now();
    EXPECT_LT(User::Took(user.Fetch(little, {0}), asked), kFewSlices);
    EXPECT_GT(User::Took(all, began), 2 * kFewSlices);
  });
}

// Their hosts are cut off, but nothing has been declared dead yet.
TEST(FairCopies, PeersThatDoNotAnswerDelayNoOther) {
  spdlog::set_level(spdlog::level::critical);
  FiberWorld world(1);
  const absl::Status ended = world.Run(
      [&] {
        constexpr uint32_t kWorkers = 12;
        Processes processes(&world, {.islands = {std::vector<uint32_t>(kWorkers, 1)}});
        ASSERT_TRUE(processes.Start().ok());
        User user(processes, "user");
        std::vector<ArrayHandle> arrays;
        for (uint32_t device = 0; device < kWorkers; ++device)
          arrays.push_back(user.Make({device}, 4));
        for (uint32_t worker = 2; worker < kWorkers; ++worker)
          processes.network().Shield(Processes::WorkerName({0, worker}) + "#1", true);
        std::vector<Ready> unanswered;
        for (uint32_t device = 2; device < kWorkers; ++device)
          unanswered.push_back(user.Copy(arrays[device], {0}));
        const auto began = Clock::now();
        EXPECT_LT(User::Took(user.Copy(arrays[1], {0}), began), seconds(1));
        for (const Ready& each : unanswered) {
          EXPECT_TRUE(each->WaitFor(seconds(20)).has_value());
          EXPECT_LT(Clock::now() - began, seconds(11));
        }
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << ended;
}

}  // namespace
}  // namespace gangway::simulation
