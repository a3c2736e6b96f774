// The real roles in a FiberWorld lose a worker at a moment that the seed picks. Its shards are lost, and no others:
// views of the shards on other workers, made before or after the loss, give the right bytes and are arguments of
// programs, and a replicated array can be read as long as one of its workers lives.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/simulation/processes.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kF32 = 11;  // xla::PrimitiveType
constexpr int kElements = 64;
constexpr size_t kBytes = size_t{4} * kElements;
constexpr uint32_t kDevices = 5;

const std::string& Program() {
  static const auto* text = new std::string(absl::StrCat(
      "sim 1\nname step\ncost_us 300\ninput 11 ", kElements, "\noutput 11 ", kElements, "\n"));
  return *text;
}

std::string Expected(const std::string& argument) {
  const auto program = device::ParseSimProgram(Program());
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(argument.data()),
                                         argument.size());
  const auto output = device::SimOutput(*program, 0, 0, device::DigestInputs(*program, {{bytes}}));
  return {reinterpret_cast<const char*>(output.data()), output.size()};
}

struct Sample {
  ArrayHandle handle{};
  bool replicated = false;
  std::vector<uint32_t> devices;
  std::vector<std::string> bytes;  // of each shard
  std::vector<ArrayHandle> views;  // of each shard, made before the loss
};

// One client, what it has, and what must become of it when workers are lost.
class Owner {
 public:
  Owner(FiberWorld* world, Client* client) : world_(world), client_(client) {
    for (uint32_t device = 0; device < kDevices; ++device) {
      auto compiled = std::make_shared<Answer<absl::Status>>();
      programs_.push_back(
          client_->Compile(Program(), "sim", "", {device},
                           [compiled](const auto& info) { compiled->Set(info.status()); }));
      EXPECT_EQ(compiled->WaitFor(seconds(60)), absl::OkStatus());
    }
  }

  void MakeSamples(int count) {
    for (int i = 0; i < count; ++i) {
      Sample sample{.handle = client_->NewArrayHandle(),
                    .replicated = world_->random().Percent(50)};
      for (uint32_t device = 0; device < kDevices; ++device) {
        if (world_->random().Percent(60) || (device + 1 == kDevices && sample.devices.empty()))
          sample.devices.push_back(device);
      }
      const OperationId upload = client_->Upload(sample.handle, {.element_type = kF32,
                                                                 .shard_dims = {kElements},
                                                                 .devices = sample.devices,
                                                                 .shard_bytes = kBytes});
      for (uint32_t shard = 0; shard < sample.devices.size(); ++shard) {
        const auto letter =
            static_cast<char>('a' + (sample.replicated ? i : i + static_cast<int>(shard)) % 26);
        auto data = std::make_shared<std::string>(kBytes, letter);
        sample.bytes.push_back(*data);
        client_->Push(upload, shard, *data, [data] {});
      }
      for (uint32_t shard = 0; shard < sample.devices.size(); ++shard)
        sample.views.push_back(View(sample, shard));
      EXPECT_TRUE(Await(sample.handle).ok());
      samples_.push_back(std::move(sample));
    }
  }

  // Fails if a shard that is on none of `lost` is not what it was, or another one is.
  void Check(const std::set<uint32_t>& lost) {
    for (const Sample& sample : samples_) {
      bool any_lost = false, any_left = false;
      for (uint32_t shard = 0; shard < sample.devices.size(); ++shard) {
        const uint32_t device = sample.devices[shard];
        const bool gone = lost.contains(device);
        any_lost |= gone;
        any_left |= !gone;
        const ArrayHandle late = View(sample, shard);
        for (ArrayHandle view : {sample.views[shard], late})
          Expect(FetchOf(view), gone, sample.bytes[shard], "a view");
        Expect(FetchOf(sample.handle, shard), gone, sample.bytes[shard], "a shard");
        if (!gone) ExpectRuns(device, late, sample.bytes[shard]);
      }
      EXPECT_EQ(Await(sample.handle).ok(), !any_lost);
      if (!sample.replicated) continue;
      const ArrayHandle replica = client_->NewArrayHandle();
      client_->Regroup({{.array = replica, .replica_of = sample.handle}});
      Expect(FetchOf(replica), !any_left, sample.bytes[0], "a replica");
    }
  }

  // Waits until nothing on the device can be read any more. True within 10 s.
  bool WaitForLoss(uint32_t device) {
    const auto deadline = Clock::now() + seconds(10);
    bool any = true;  // shards there
    while (any && Clock::now() < deadline) {
      any = false;
      for (const Sample& sample : samples_) {
        for (size_t shard = 0; shard < sample.devices.size(); ++shard) {
          if (sample.devices[shard] != device) continue;
          any = true;
          if (!FetchOf(sample.views[shard])) return true;
        }
      }
      Answer<bool>().WaitFor(milliseconds(5));
    }
    return !any;
  }

  // Reads what is there, while a worker may be lost: right bytes or an error.
  void Read(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const Sample& sample = samples_[world_->random().Below(samples_.size())];
      const auto shard = static_cast<uint32_t>(world_->random().Below(sample.devices.size()));
      const std::optional<std::string> got = FetchOf(sample.handle, shard);
      EXPECT_EQ(got.value_or(sample.bytes[shard]), sample.bytes[shard]);
    }
  }

 private:
  ArrayHandle View(const Sample& sample, uint32_t shard) {
    const ArrayHandle view = client_->NewArrayHandle();
    client_->Regroup({{.array = view, .shards = {{sample.handle, shard}}}});
    return view;
  }
  static void Expect(const std::optional<std::string>& got, bool gone, const std::string& bytes,
                     const char* what) {
    EXPECT_EQ(got.has_value(), !gone) << what;
    EXPECT_EQ(gone ? bytes : got.value_or(""), bytes) << what;
  }
  void ExpectRuns(uint32_t device, ArrayHandle argument, const std::string& bytes) {
    const ArrayHandle result = client_->NewArrayHandle();
    client_->Call(programs_[device], {&argument, 1}, {&result, 1});
    Expect(FetchOf(result), false, Expected(bytes), "a result");
    client_->Drop({{result}});
  }
  absl::Status Await(ArrayHandle array) {
    auto ready = std::make_shared<Answer<absl::Status>>();
    client_->Await({{array}}, [ready](absl::Status status) { ready->Set(std::move(status)); });
    auto status = ready->WaitFor(seconds(60));
    EXPECT_TRUE(status.has_value()) << "no answer";
    return status.value_or(absl::DeadlineExceededError("no answer"));
  }
  // Null: an error, which names the loss.
  std::optional<std::string> FetchOf(ArrayHandle array, uint32_t shard = 0) {
    auto data = std::make_shared<std::string>(kBytes, '\0');
    auto done = std::make_shared<Answer<absl::Status>>();
    client_->Fetch(array, {shard},
                   {.on_data =
                        [data](size_t, uint64_t offset, std::string_view piece) {
                          std::memcpy(data->data() + offset, piece.data(), piece.size());
                        },
                    .on_done = [done](absl::Status ended) { done->Set(std::move(ended)); }});
    const auto status = done->WaitFor(seconds(60));
    EXPECT_TRUE(status.has_value()) << "no answer";
    if (status == absl::OkStatus()) return *data;
    return std::nullopt;
  }

  FiberWorld* const world_;
  Client* const client_;
  std::vector<ExecutableHandle> programs_;  // by device
  std::vector<Sample> samples_;
};

void RunSeed(uint64_t seed) {
  FiberWorld world(seed);
  const absl::Status ended = world.Run(
      [&] {
        // Device i is the only one of its worker.
        const std::vector<Processes::WorkerKey> workers = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}};
        Processes processes(&world, {.islands = {{1, 1, 1}, {1, 1}}});
        ASSERT_TRUE(processes.Start().ok());
        auto client = processes.Connect("client");
        ASSERT_TRUE(client.ok()) << client.status();
        Owner owner(&world, client->get());
        owner.MakeSamples(8);
        owner.Check({});
        std::set<uint32_t> lost;
        for (int round = 0; round < 2; ++round) {
          const auto device = static_cast<uint32_t>(world.random().Below(kDevices));
          Thread reader("reader", [&] { owner.Read(20); });
          Answer<bool>().WaitFor(milliseconds(world.random().Below(20)));
          processes.KillWorker(workers[device]);
          reader.Join();
          lost.insert(device);
          EXPECT_TRUE(owner.WaitForLoss(device)) << "seed " << seed;
          // Whether or not the worker is back: the next one has none of its arrays.
          if (world.random().Percent(50)) Answer<bool>().WaitFor(seconds(2));
          owner.Check(lost);
        }
        client->reset();
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << "seed " << seed << ": " << ended;
}

TEST(PartialLossTest, WhatIsOnLiveWorkersStays_OB1_ER1) {
  spdlog::set_level(spdlog::level::critical);
  const char* text = std::getenv("GANGWAY_SEEDS");
  const int seeds = text == nullptr ? 30 : std::atoi(text);
  for (int seed = 1; seed <= seeds; ++seed) {
    RunSeed(static_cast<uint64_t>(seed));
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace gangway::simulation
