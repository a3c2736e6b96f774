// Gangs whose members are on several simulated workers and communicate by Gangway's own collectives: their results are
// exact sums, whatever the seed; and a member that is killed or fails ends its gang, by name, and no other worker.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/simulation/user.h"

namespace gangway::simulation {
namespace {

using std::chrono::seconds;

constexpr size_t kElements = 1000;
constexpr uint32_t kDevices = 5;
constexpr uint32_t kRounds = 3;

// A word of each partition: the sum of all, and the one of the partition before it, kRounds times.
std::string Program(int64_t cost_us, const std::string& trouble = "",
                    size_t partitions = kDevices) {
  return absl::StrCat("sim 1\nname ring\npartitions ", partitions, "\ncost_us ", cost_us, "\n",
                      trouble, "all_reduce 0\npermute 1 1\nrounds ", kRounds, "\ninput 11 ",
                      kElements, "\ninput 11 ", kElements, "\noutput 11 ", kElements,
                      "\noutput 11 ", kElements, "\n");
}

std::string Words(uint32_t value) {
  std::string bytes(kElements * sizeof(value), '\0');
  for (size_t i = 0; i < kElements; ++i)
    std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
  return bytes;
}

class Ring {
 public:
  Ring(uint64_t seed, std::vector<std::vector<uint32_t>> islands) : world_(seed) {
    options_.islands = std::move(islands);
  }
  void Run(const std::function<void(Processes&, User&)>& body) {
    spdlog::set_level(spdlog::level::off);
    const absl::Status ended = world_.Run(
        [&] {
          Processes processes(&world_, options_);
          ASSERT_EQ(processes.Start(), absl::OkStatus());
          User user(processes, "user");
          body(processes, user);
        },
        std::chrono::hours(1));
    EXPECT_EQ(ended, absl::OkStatus());
  }

 private:
  FiberWorld world_;
  ProcessesOptions options_;
};

ArrayHandle Upload(User& user, const Devices& devices, uint32_t first) {
  const ArrayHandle array = user.client().NewArrayHandle();
  const OperationId upload = user.client().Upload(array, {.element_type = 11,
                                                          .shard_dims = {kElements},
                                                          .devices = devices,
                                                          .shard_bytes = kElements * 4});
  for (uint32_t shard = 0; shard < devices.size(); ++shard) {
    auto data = std::make_shared<std::string>(Words(first + shard));
    user.client().Push(upload, shard, *data, [data] {});
  }
  return array;
}

std::string Fetch(User& user, ArrayHandle array, uint32_t shard) {
  auto bytes = std::make_shared<std::string>(kElements * 4, '\0');
  auto ready = std::make_shared<Answer<absl::Status>>();
  user.client().Fetch(array, {shard},
                      {.on_data =
                           [bytes](size_t, uint64_t offset, std::string_view data) {
                             std::memcpy(bytes->data() + offset, data.data(), data.size());
                           },
                       .on_done = [ready](absl::Status status) { ready->Set(std::move(status)); }});
  User::Expect(ready);
  return *bytes;
}

// The two results.
std::vector<ArrayHandle> Call(User& user, ExecutableHandle ring, const Devices& devices,
                              uint32_t first) {
  const std::vector<ArrayHandle> arguments = {Upload(user, devices, first),
                                              Upload(user, devices, 10)};
  const std::vector<ArrayHandle> results = {user.client().NewArrayHandle(),
                                            user.client().NewArrayHandle()};
  user.client().Call(ring, arguments, results);
  return results;
}

std::string SumOf(uint32_t first) {
  return Words((kDevices * first + 10) * kDevices * kDevices);  // of kRounds rounds
}

TEST(SpanningCollectivesTest, SumsAreExactOverWorkers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Ring(seed, {{2, 1, 2}}).Run([](Processes&, User& user) {
      const Devices devices = {3, 0, 4, 2, 1};
      const ExecutableHandle ring = user.Compile(Program(200), devices);
      for (uint32_t gang = 0; gang < 4; ++gang) {
        const std::vector<ArrayHandle> arguments = {Upload(user, devices, gang),
                                                    Upload(user, devices, 10)};
        const std::vector<ArrayHandle> results = {user.client().NewArrayHandle(),
                                                  user.client().NewArrayHandle()};
        user.client().Call(ring, arguments, results);
        const uint32_t sum = (kDevices * gang + 10) * kDevices * kDevices;  // of kRounds rounds
        for (uint32_t shard = 0; shard < kDevices; ++shard) {
          EXPECT_EQ(Fetch(user, results[0], shard), Words(sum));
          EXPECT_EQ(Fetch(user, results[1], shard),
                    Words(10 + (shard + kDevices - kRounds) % kDevices));
        }
      }
    });
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// At a moment that the seed picks: before, in or between the gang's collectives.
TEST(SpanningCollectivesTest, AKilledMemberEndsItsGangsAndNoWorker_ER1_ER2) {
  int failed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Ring(seed, {{2, 1, 2}}).Run([&](Processes& processes, User& user) {
      const Devices devices = {3, 0, 4, 2, 1};
      const ExecutableHandle ring = user.Compile(Program(1000), devices);
      std::vector<Ready> ready;
      for (uint32_t gang = 0; gang < 8; ++gang) {
        const std::vector<ArrayHandle> arguments = {Upload(user, devices, gang),
                                                    Upload(user, devices, 10)};
        const std::vector<ArrayHandle> results = {user.client().NewArrayHandle(),
                                                  user.client().NewArrayHandle()};
        user.client().Call(ring, arguments, results);
        ready.push_back(user.WhenReady(results[0]));
      }
      Answer<bool>().WaitFor(std::chrono::milliseconds(seed % 20));
      const Processes::WorkerKey killed(0, static_cast<uint32_t>(seed % 3));
      processes.KillWorker(killed);
      const Clock::time_point began = Clock::now();
      for (const Ready& each : ready) {
        const absl::Status status =
            each->WaitFor(seconds(60)).value_or(absl::UnknownError("hangs"));
        if (status.ok()) continue;
        ++failed;
        EXPECT_TRUE(absl::IsDataLoss(status)) << status;
        EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("worker", killed.second)))
            << status;
      }
      EXPECT_LT(Clock::now() - began, seconds(1));
      // Its place is taken by a new process, the others are those that they were, and all can meet again.
      const std::vector<ArrayHandle> again = {Upload(user, devices, 1), Upload(user, devices, 10)};
      const std::vector<ArrayHandle> results = {user.client().NewArrayHandle(),
                                                user.client().NewArrayHandle()};
      user.client().Call(user.Compile(Program(10), devices), again, results);
      EXPECT_EQ(Fetch(user, results[0], 0), Words((kDevices + 10) * kDevices * kDevices));
      for (uint32_t index = 0; index < 3; ++index) {
        EXPECT_EQ(processes.Lives(Processes::WorkerName({0, index})),
                  index == killed.second ? 2u : 1u);
      }
    });
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(failed, 60);
}

// Before, between or after its collectives, among gangs that do not fail, in whatever order the members come.
TEST(SpanningCollectivesTest, AFailedMemberEndsItsGangWithinASecondAndNoOther_ER1_ER2) {
  for (uint64_t seed = 1; seed <= 70; ++seed) {
    Ring(seed, {{2, 1, 2}}).Run([&](Processes& processes, User& user) {
      User other(processes, "other");
      const Devices devices = {3, 0, 4, 2, 1}, others = {1, 2, 0, 4, 3};
      const uint64_t failing = seed % kDevices;
      const ExecutableHandle ring = user.Compile(Program(1000), devices);
      const ExecutableHandle fails = user.Compile(
          Program(1000, absl::StrCat("fails ", failing, " ", seed % (2 * kRounds + 1), "\n")),
          devices);
      const ExecutableHandle of_other = other.Compile(Program(500), others);
      std::vector<ArrayHandle> good, bad, good_of_other;
      for (uint32_t gang = 0; gang < 3; ++gang) {
        good.push_back(Call(user, ring, devices, gang)[0]);
        bad.push_back(Call(user, fails, devices, gang)[gang % 2]);
        good_of_other.push_back(Call(other, of_other, others, gang)[0]);
      }
      const Clock::time_point began = Clock::now();
      for (ArrayHandle each : bad) {
        const absl::Status status =
            user.WhenReady(each)->WaitFor(seconds(60)).value_or(absl::UnknownError("hangs"));
        EXPECT_TRUE(absl::IsInternal(status)) << status;
        EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("on device ", failing)))
            << status;
      }
      for (uint32_t gang = 0; gang < 3; ++gang) {
        EXPECT_EQ(Fetch(user, good[gang], gang), SumOf(gang));
        EXPECT_EQ(Fetch(other, good_of_other[gang], gang), SumOf(gang));
      }
      EXPECT_LT(Clock::now() - began, seconds(1));
      for (uint32_t index = 0; index < 3; ++index)
        EXPECT_EQ(processes.Lives(Processes::WorkerName({0, index})), 1u);
    });
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// The failed member's worker waits for its slow neighbour. The other workers end the gang at once, so other sessions'
// gangs run there.
TEST(SpanningCollectivesTest, AFailedMemberBesideASlowOneHoldsUpNoOtherWorker_ER2) {
  constexpr seconds kSlow{3};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Ring(seed, {{2, 1, 2}}).Run([&](Processes& processes, User& user) {
      User other(processes, "other");
      const Devices devices = {3, 0, 4, 2, 1};
      const bool is_last = seed % 2 == 0;  // worker
      const Devices elsewhere = is_last ? Devices{2, 1, 0} : Devices{2, 4, 3};
      const uint32_t failing = (is_last ? 3 : 0) + seed / 2 % 2, slow = (is_last ? 7 : 1) - failing;
      const ExecutableHandle fails =
          user.Compile(Program(1000, absl::StrCat("fails ", failing, " 0\nslow ", slow, " ",
                                                  std::chrono::microseconds(kSlow).count(), "\n")),
                       devices);
      const ExecutableHandle of_other =
          other.Compile(Program(500, "", elsewhere.size()), elsewhere);
      const Clock::time_point began = Clock::now();
      const Ready bad = user.WhenReady(Call(user, fails, devices, 0)[0]);
      Answer<bool>().WaitFor(std::chrono::milliseconds(seed));  // before it fails, or after that
      for (uint32_t gang = 0; gang < 3; ++gang)
        User::Expect(other.WhenReady(Call(other, of_other, elsewhere, gang)[0]));
      EXPECT_LT(Clock::now() - began, seconds(1));
      const absl::Status status = bad->WaitFor(seconds(60)).value_or(absl::UnknownError("hangs"));
      EXPECT_TRUE(absl::IsInternal(status)) << status;
      EXPECT_LT(Clock::now() - began, kSlow + seconds(1));
    });
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// A slow member of an ended session's gang delays neither other workers nor other sessions.
TEST(SpanningCollectivesTest, AnEndedSessionHoldsUpNoOtherWorker_ER2) {
  constexpr seconds kSlow{3};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Ring(seed, {{2, 1, 2}}).Run([&](Processes& processes, User& user) {
      const Devices devices = {3, 0, 4, 2, 1}, elsewhere = {2, 4, 3};
      const ExecutableHandle of_user = user.Compile(Program(500, "", elsewhere.size()), elsewhere);
      {
        User leaving(processes, "leaving");
        const ExecutableHandle ring = leaving.Compile(
            Program(1000, absl::StrCat("slow 1 ", std::chrono::microseconds(kSlow).count(), "\n")),
            devices);
        Call(leaving, ring, devices, 0);
        Answer<bool>().WaitFor(std::chrono::milliseconds(seed));
        if (seed % 2 == 0) processes.Kill("leaving");
      }
      const Clock::time_point began = Clock::now();
      for (uint32_t gang = 0; gang < 3; ++gang)
        User::Expect(user.WhenReady(Call(user, of_user, elsewhere, gang)[0]));
      EXPECT_LT(Clock::now() - began, seconds(1));
    });
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace gangway::simulation
