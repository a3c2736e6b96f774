// Tests of local_executables.h, on simulated devices.
#include "gangway/worker/service/launch/local_executables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/collective/arena_directory.h"
#include "gangway/worker/service/lowered_permute_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
constexpr ExecutableId kProgram(1);
constexpr uint64_t kSelf = 5, kPeer = 77;  // incarnations
constexpr DeviceId kDevice(100), kPeerDevice(900);

absl::Status Wanted() { return absl::OkStatus(); }

// A worker with one device. Another one shares its process, so that it reaches that one's memory without a link.
class LocalExecutablesTest : public testing::Test {
 protected:
  explicit LocalExecutablesTest(device::SimOptions sim = {.device_count = 1})
      : backend_(device::OpenSim(std::move(sim))) {
    arenas_.Add(kPeer, *collective::Arena::Anonymous(1));
  }
  ~LocalExecutablesTest() override { executables_.Stop(); }

  std::string Serialized() const {
    const std::string text =
        "sim 1\nname step\npartitions 1\ncost_us 100\ninput 11 4\noutput 11 4\n";
    auto executable = backend_->Compile({text, "sim"}, "", std::vector<int>{0});
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *(*executable)->Serialize();
  }
  static WorkerRef Worker(uint32_t index, uint64_t incarnation, DeviceId device) {
    auto worker = std::make_shared<wire::Worker>();
    worker->set_index(index);
    worker->set_incarnation(incarnation);
    worker->add_devices(device.number());
    return worker;
  }

  LoadExecutable Plain() const {
    return {.executable = kProgram,
            .held = held_,
            .name = "step",
            .serialized = Serialized(),
            .devices = {0}};
  }
  LoadExecutable WithCollectives() const {
    wire::Positions positions;
    positions.set_replicas(1);
    positions.set_partitions(2);
    return {.executable = kProgram,
            .held = held_,
            .name = "step",
            .serialized = LoweredPermute(Serialized(), 2),
            .devices = {0},
            .has_collectives = true,
            .positions = positions,
            .position_devices = {kDevice, kPeerDevice},
            .members = {Worker(0, kSelf, kDevice), Worker(1, kPeer, kPeerDevice)}};
  }
  ExecutableLoaded Load(LoadExecutable load) {
    loaded_ = std::make_unique<Answer<ExecutableLoaded>>();
    executables_.Load(load);
    EXPECT_NE(held_.get(), nullptr) << "launches may come before the executable is loaded";
    auto loaded = loaded_->WaitFor(kPatience);
    EXPECT_TRUE(loaded.has_value());
    return loaded.value_or(ExecutableLoaded{});
  }
  GangCollectives::Parts Launch() {
    return executables_.CollectivesOf({.executable = kProgram,
                                       .held_executable = held_,
                                       .positions = {{.position = 0, .device = 0}}});
  }
  static absl::Status Reached(const GangCollectives::Parts& parts) {
    return parts.peers->Wait(Clock::now() + kPatience, Wanted).status();
  }

  EventLoop loop_{"worker"};
  ArenaDirectory arenas_;
  const std::unique_ptr<device::SimBackend> backend_;
  CollectivePeers peers_{
      {.identity = {.name = "worker0", .incarnation = Incarnation(kSelf), .device_count = 1},
       .loop = &loop_,
       .arenas = &arenas_}};
  const Held<ExecutableSlot> held_ = Held<ExecutableSlot>::New();
  std::unique_ptr<Answer<ExecutableLoaded>> loaded_;
  LocalExecutables executables_{
      {.backend = backend_.get(), .peers = &peers_, .on_loaded = [this](ExecutableLoaded event) {
         loaded_->Set(std::move(event));
       }}};
};

TEST_F(LocalExecutablesTest, AnExecutableIsLoadedAndFreed) {
  const ExecutableLoaded loaded = Load(Plain());
  EXPECT_EQ(loaded.executable, kProgram);
  EXPECT_FALSE(loaded.failure.has_value()) << loaded.failure->message();
  EXPECT_TRUE(held_.get()->is_set());
  EXPECT_TRUE(held_.get()->Wait(Clock::now()).ok());
  EXPECT_EQ(Launch().peers, nullptr) << "it has no collectives";
  const std::weak_ptr<ExecutableSlot> slot = held_.get();
  executables_.Unload({kProgram, held_});
  EXPECT_EQ(held_.get(), nullptr);
  executables_.Stop();
  EXPECT_TRUE(slot.expired());
}

TEST_F(LocalExecutablesTest, ALoadThatFailsIsTheFailureOfEachGang) {
  LoadExecutable load = Plain();
  load.serialized = "nonsense";
  const ExecutableLoaded loaded = Load(std::move(load));
  ASSERT_TRUE(loaded.failure.has_value());
  const absl::Status status = held_.get()->Wait(Clock::now()).status();
  EXPECT_EQ(status.code(), wire::ToStatus(*loaded.failure).code());
  EXPECT_EQ(status.message(), loaded.failure->message());
}

// The runtime never sees a program whose collectives cannot be read.
TEST_F(LocalExecutablesTest, ATableThatDoesNotFitItsProgramFailsTheLoad) {
  LoadExecutable load = WithCollectives();
  load.position_devices.emplace_back(901);
  const ExecutableLoaded loaded = Load(std::move(load));
  ASSERT_TRUE(loaded.failure.has_value());
  EXPECT_FALSE(held_.get()->Wait(Clock::now()).ok());
  EXPECT_EQ(held_.get()->plan(), nullptr);
}

TEST_F(LocalExecutablesTest, LaunchesOfAProgramShareWhereItsMembersRun) {
  EXPECT_FALSE(Load(WithCollectives()).failure.has_value());
  const GangCollectives::Parts first = Launch();
  ASSERT_NE(first.peers, nullptr);
  EXPECT_EQ(Reached(first), absl::OkStatus());
  EXPECT_THAT(first.devices, testing::ElementsAre(peers_.local(0)));
  EXPECT_NE(peers_.local(0), nullptr);
  EXPECT_EQ(Launch().peers, first.peers);
}

TEST_F(LocalExecutablesTest, LaunchesAfterAMembersEndDoNotMeetItsMemory) {
  EXPECT_FALSE(Load(WithCollectives()).failure.has_value());
  const GangCollectives::Parts before = Launch();
  EXPECT_EQ(Reached(before), absl::OkStatus());
  executables_.UpdatePeer(*Worker(7, 78, DeviceId(950)));
  EXPECT_EQ(Launch().peers, before.peers) << "it is a member of no program here";
  executables_.UpdatePeer(*Worker(1, 0, kPeerDevice));
  const GangCollectives::Parts after = Launch();
  EXPECT_NE(after.peers, before.peers);
  EXPECT_FALSE(Reached(after).ok());
}

TEST_F(LocalExecutablesTest, TheMemoryOfMembersIsLetGoOnceAMemberHasEndedOrTheProgramHas) {
  EXPECT_FALSE(Load(WithCollectives()).failure.has_value());
  std::weak_ptr<PendingPeers> known = Launch().peers;
  EXPECT_FALSE(known.expired());
  executables_.UpdatePeer(*Worker(1, 0, kPeerDevice));
  EXPECT_TRUE(known.expired());
  known = Launch().peers;
  EXPECT_FALSE(known.expired());
  executables_.Unload({kProgram, held_});
  EXPECT_TRUE(known.expired());
}

class ExecutablesOfABlockingRuntimeTest : public LocalExecutablesTest {
 protected:
  ExecutablesOfABlockingRuntimeTest()
      : LocalExecutablesTest({.device_count = 1, .collectives_block_threads = true}) {}
};

TEST_F(ExecutablesOfABlockingRuntimeTest, GangsThatCommunicateInTheRuntimeAreAloneInADevice) {
  LoadExecutable load = Plain();
  load.has_collectives = true;
  Load(std::move(load));
  EXPECT_EQ(held_.get()->turn(), DeviceThread::Turn::kGangAlone);
  Load(Plain());
  EXPECT_EQ(held_.get()->turn(), DeviceThread::Turn::kGang);
}

}  // namespace
}  // namespace gangway::worker
