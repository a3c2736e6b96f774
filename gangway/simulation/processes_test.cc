// The real roles in a FiberWorld: programs run, and the same seed gives the same run.
#include "gangway/simulation/processes.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kF32 = 11;  // xla::PrimitiveType

std::string ProgramOf(int elements, int cost_us = 300) {
  return absl::StrCat("sim 1\nname step\ncost_us ", cost_us, "\ninput 11 ", elements,
                      "\noutput 11 ", elements, "\n");
}

std::string Expected(int elements, const std::string& argument) {
  const auto program = device::ParseSimProgram(ProgramOf(elements));
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(argument.data()),
                                         argument.size());
  const auto output = device::SimOutput(*program, 0, 0, device::DigestInputs(*program, {{bytes}}));
  return {reinterpret_cast<const char*>(output.data()), output.size()};
}

std::string FetchOf(Client& client, ArrayHandle array, size_t bytes, absl::Status& status) {
  auto data = std::make_shared<std::string>(bytes, '\0');
  auto done = std::make_shared<Answer<absl::Status>>();
  client.Fetch(array, {0},
               {.on_data =
                    [data](size_t, uint64_t offset, std::string_view piece) {
                      std::memcpy(data->data() + offset, piece.data(), piece.size());
                    },
                .on_done = [done](absl::Status ended) { done->Set(std::move(ended)); }});
  status = done->WaitFor(seconds(100)).value_or(absl::DeadlineExceededError("no answer"));
  return *data;
}

struct Outcome {
  uint64_t fingerprint = 0;
  uint64_t switches = 0;
  int failed = 0;  // fetches
};

struct Plan {
  int rounds = 10;
  int elements_max = 100000;
  bool kill = false;
  std::vector<std::vector<uint32_t>> islands = {{2}};
};

Outcome RunCluster(uint64_t seed, const Plan& plan) {
  Outcome outcome;
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        Processes processes(&world, {.islands = plan.islands});
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        const auto devices = static_cast<uint32_t>((*client)->cluster().devices.size());
        for (int round = 0; round < plan.rounds; ++round) {
          const auto elements = static_cast<int>(world.random().Between(1, plan.elements_max));
          const auto device = static_cast<uint32_t>(world.random().Below(devices));
          auto compiled = std::make_shared<Answer<absl::Status>>();
          const ExecutableHandle step =
              (*client)->Compile(ProgramOf(elements), "sim", "", {device},
                                 [compiled](const auto& info) { compiled->Set(info.status()); });
          ASSERT_EQ(compiled->WaitFor(seconds(60)), absl::OkStatus());
          const ArrayHandle in = (*client)->NewArrayHandle(), out = (*client)->NewArrayHandle();
          const uint64_t bytes = uint64_t{4} * static_cast<uint64_t>(elements);
          const OperationId upload = (*client)->Upload(in, {.element_type = kF32,
                                                            .shard_dims = {elements},
                                                            .devices = {device},
                                                            .shard_bytes = bytes});
          auto data = std::make_shared<std::string>(bytes, static_cast<char>('a' + round % 26));
          if (plan.kill && world.random().Percent(20)) processes.KillWorker({0, 0});
          (*client)->Push(upload, 0, *data, [data] {});
          (*client)->Call(step, {&in, 1}, {&out, 1});
          absl::Status status;
          const std::string got = FetchOf(**client, out, bytes, status);
          if (status.ok()) {
            EXPECT_EQ(got, Expected(elements, *data)) << "seed " << seed << ", round " << round;
          } else {
            EXPECT_TRUE(plan.kill) << "seed " << seed << ", round " << round << ": " << status;
            ++outcome.failed;
          }
          (*client)->Drop({{in, out}});
          outcome.fingerprint = Mix(outcome.fingerprint ^
                                    static_cast<uint64_t>(Clock::now().time_since_epoch().count()));
        }
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
  outcome.fingerprint = Mix(outcome.fingerprint ^ world.switches());
  outcome.switches = world.switches();
  return outcome;
}

enum class Break { kReset, kHalf, kSilence, kShield, kDark };

void BreakLinks(Processes& processes, Random& random, Break how) {
  transport::SimNetwork& network = processes.network();
  for (const auto& link : network.Links()) {
    if (!absl::StartsWith(link.server, "worker")) continue;
    switch (how) {
      case Break::kReset:
        network.Reset(link.id);
        break;
      case Break::kHalf:
        network.ResetOneEnd(link.id, /*client=*/random.Percent(50));
        break;
      case Break::kSilence:
        network.Silence(link.id, random.Percent(70), true);
        break;
      case Break::kShield:
        network.Shield(link.server, true);
        network.Reset(link.id);
        break;
      case Break::kDark:
        network.Shield(link.server, true);
        network.Silence(link.id, true, true);
        break;
    }
  }
}

// What is under way when data links break, and how long its answers take.
class Traffic {
 public:
  Traffic(FiberWorld* world, Client* client, bool must_succeed)
      : world_(world), client_(client), must_succeed_(must_succeed) {}

  // Uploads of a few bytes or of many pieces, `at_once` at a time, each awaited and fetched.
  // To `device`, or to any.
  void Run(int rounds, int at_once, uint64_t elements_max, uint64_t elements_min = 1,
           std::optional<uint32_t> device = {}) {
    for (int round = 0; round < rounds; ++round) {
      std::vector<Thread> users;
      for (int user = 0; user < at_once; ++user)
        users.emplace_back("user", [=, this] { One(elements_min, elements_max, device); });
      for (Thread& user : users) user.Join();
    }
  }
  // Fetches an array that is there, again and again.
  void Read(int rounds, ArrayHandle array, size_t bytes) {
    for (int round = 0; round < rounds; ++round) {
      absl::Status status;
      const auto began = Clock::now();
      FetchOf(*client_, array, bytes, status);
      longest_ = std::max<std::chrono::nanoseconds>(longest_, Clock::now() - began);
      Answer<bool>().WaitFor(milliseconds(world_->random().Below(3)));
    }
  }
  void One(uint64_t elements_min, uint64_t elements_max, std::optional<uint32_t> device) {
    const size_t bytes = 4 * world_->random().Between(elements_min, elements_max);
    if (!device)
      device = static_cast<uint32_t>(world_->random().Below(client_->cluster().devices.size()));
    const ArrayHandle array = client_->NewArrayHandle();
    const OperationId upload =
        client_->Upload(array, {.element_type = kF32,
                                .shard_dims = {static_cast<int64_t>(bytes / 4)},
                                .devices = {*device},
                                .shard_bytes = bytes});
    auto data = std::make_shared<std::string>(bytes, static_cast<char>('a' + bytes % 26));
    const auto began = Clock::now();
    client_->Push(upload, 0, *data, [data] {});
    auto ready = std::make_shared<Answer<absl::Status>>();
    client_->Await({{array}}, [ready](absl::Status status) { ready->Set(std::move(status)); });
    absl::Status status;
    const std::string got = FetchOf(*client_, array, bytes, status);
    const auto is_ready = ready->WaitFor(seconds(100));
    longest_ = std::max<std::chrono::nanoseconds>(longest_, Clock::now() - began);
    EXPECT_TRUE(is_ready.has_value()) << "an array that is never ready";
    EXPECT_TRUE(!status.ok() || got == *data);
    EXPECT_TRUE(!must_succeed_ || (status.ok() && is_ready == absl::OkStatus())) << status;
    client_->Drop({{array}});
  }
  std::chrono::nanoseconds longest() const { return longest_; }

 private:
  FiberWorld* const world_;
  Client* const client_;
  const bool must_succeed_;
  std::chrono::nanoseconds longest_{0};
};

// The longest wait for an answer, while all data links break at a moment that the seed picks.
std::chrono::nanoseconds LongestWait(uint64_t seed, Break how) {
  std::chrono::nanoseconds longest{0};
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        // No help from the network: only the roles' own signs of life tell that a link is silent.
        ProcessesOptions options{.islands = {{1, 1}, {1, 1, 1, 1}}};
        options.network.silence_max = std::chrono::minutes(2);
        Processes processes(&world, options);
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        Traffic traffic(&world, client->get(), /*must_succeed=*/false);
        const ArrayHandle there = (*client)->NewArrayHandle();
        const std::string data(40, 'd');
        (*client)->Push((*client)->Upload(there, {.element_type = kF32,
                                                  .shard_dims = {10},
                                                  .devices = {3},
                                                  .shard_bytes = data.size()}),
                        0, data, [] {});
        absl::Status status;
        EXPECT_EQ(FetchOf(**client, there, data.size(), status), data);
        // Some runs only read, long after the last upload; some queue more than a link takes.
        const bool reads_only = seed % 4 == 0;
        if (reads_only) Answer<bool>().WaitFor(seconds(10));
        Thread flood("flood", [&] {
          if (seed % 8 == 1) traffic.Run(1, 3, 3'000'000, 3'000'000, /*device=*/0);
        });
        Thread read("read", [&] { traffic.Read(20, there, data.size()); });
        Thread small("small", [&] { traffic.Run(reads_only ? 0 : 4, 1, 10); });
        Thread large("large", [&] { traffic.Run(reads_only ? 0 : 2, 2, 1'500'000); });
        Thread medium("medium", [&] { traffic.Run(reads_only ? 0 : 2, 8, 50'000); });
        Answer<bool>().WaitFor(milliseconds(world.random().Below(25)));
        BreakLinks(processes, world.random(), how);
        for (Thread* thread : {&flood, &read, &small, &large, &medium}) thread->Join();
        longest = traffic.longest();
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
  return longest;
}

int SeedsOr(int otherwise) {
  const char* text = std::getenv("GANGWAY_SEEDS");
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(ProcessesTest, AClientRunsProgramsOnAWorker) {
  spdlog::set_level(spdlog::level::critical);
  for (int seed = 1; seed <= SeedsOr(20); ++seed) RunCluster(static_cast<uint64_t>(seed), {});
}

std::string Fingerprints() {
  std::string all;
  Plan plan{.kill = true, .islands = {{2, 1}, {1}}};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Outcome run = RunCluster(seed, plan);
    absl::StrAppend(&all, " ", run.fingerprint, " ", run.failed);
  }
  return all;
}

TEST(ProcessesTest, TheSameSeedGivesTheSameRunInAnotherProcess) {
  spdlog::set_level(spdlog::level::critical);
  const std::string here = Fingerprints();
  if (const char* there = std::getenv("GANGWAY_FINGERPRINTS")) {
    EXPECT_EQ(here, there);
    return;
  }
  setenv("GANGWAY_FINGERPRINTS", here.c_str(), 1);
  const std::string command = absl::StrCat(std::filesystem::read_symlink("/proc/self/exe").string(),
                                           " --gtest_filter=*InAnotherProcess >&2");
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c): our own program
  unsetenv("GANGWAY_FINGERPRINTS");
}

// A question waits behind what is queued on a slow link; that is not silence.
TEST(ProcessesTest, ASlowLinkIsNotSilent) {
  spdlog::set_level(spdlog::level::critical);
  FiberWorld world(1);
  const absl::Status ended = world.Run(
      [&] {
        ProcessesOptions options{.islands = {{1}}};
        options.network.bytes_per_second = 1'000'000;
        Processes processes(&world, options);
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        Traffic traffic(&world, client->get(), /*must_succeed=*/true);
        traffic.Run(1, 1, 8'000'000, 7'000'000);
        EXPECT_GT(traffic.longest(), seconds(10));
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << ended;
}

// A worker that computes for long says nothing else on its data link, which is as good as before.
TEST(ProcessesTest, AFetchWaitsForALongProgram) {
  spdlog::set_level(spdlog::level::critical);
  FiberWorld world(1);
  const absl::Status ended = world.Run(
      [&] {
        Processes processes(&world, {.islands = {{1}}});
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        auto compiled = std::make_shared<Answer<absl::Status>>();
        const ExecutableHandle step =
            (*client)->Compile(ProgramOf(1, /*cost_us=*/60'000'000), "sim", "", {0},
                               [compiled](const auto& info) { compiled->Set(info.status()); });
        ASSERT_EQ(compiled->WaitFor(seconds(60)), absl::OkStatus());
        const ArrayHandle in = (*client)->NewArrayHandle(), out = (*client)->NewArrayHandle();
        const std::string data = "abcd";
        (*client)->Push(
            (*client)->Upload(
                in, {.element_type = kF32, .shard_dims = {1}, .devices = {0}, .shard_bytes = 4}),
            0, data, [] {});
        (*client)->Call(step, {&in, 1}, {&out, 1});
        const auto began = Clock::now();
        absl::Status status;
        const std::string got = FetchOf(**client, out, 4, status);
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_GE(Clock::now() - began, seconds(59));
        EXPECT_TRUE(got.size() == 4 && got != std::string(4, '\0'));
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << ended;
}

class BrokenDataLinks : public ::testing::TestWithParam<std::pair<Break, seconds>> {};

TEST_P(BrokenDataLinks, EveryUploadAndFetchIsAnsweredInTime) {
  spdlog::set_level(spdlog::level::critical);
  for (int seed = 1; seed <= SeedsOr(40); ++seed) {
    const auto longest = LongestWait(static_cast<uint64_t>(seed), GetParam().first);
    EXPECT_LT(longest, GetParam().second) << "seed " << seed;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Breaks, BrokenDataLinks,
                         ::testing::Values(std::pair(Break::kReset, seconds(2)),
                                           std::pair(Break::kHalf, seconds(7)),
                                           std::pair(Break::kSilence, seconds(7)),
                                           std::pair(Break::kShield, seconds(7)),
                                           std::pair(Break::kDark, seconds(7))));

}  // namespace
}  // namespace gangway::simulation
