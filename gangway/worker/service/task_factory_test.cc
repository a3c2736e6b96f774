// Tests of task_factory.h: what it makes is run here, on simulated devices. The test is the client and the other
// workers.
#include "gangway/worker/service/task_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/collective/collective_peers.h"
#include "gangway/worker/service/device/node_task_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{20'000};
constexpr Ordinal kNode(7);
constexpr SessionId kSession(5);
constexpr uint64_t kShardBytes = 8;  // two floats
constexpr uint64_t kStagingMax = 64;

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
std::vector<float> AsFloats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class OtherWorkers final : public TransferPlane {
 public:
  void Offer(Offering offering) override { offered.push_back(std::move(offering)); }
  void Settle(TransferKey key, absl::StatusOr<Buffers> shards) override {
    settled.emplace(key, std::move(shards));
  }
  void Ask(Asking asking) override { asked.push_back(std::move(asking)); }
  void Cancel(TransferKey key, absl::Status /*why*/) override { cancelled.push_back(key); }

  std::vector<Offering> offered;
  std::map<TransferKey, absl::StatusOr<Buffers>> settled;
  std::vector<Asking> asked;
  std::vector<TransferKey> cancelled;
};

class TaskFactoryTest : public testing::Test {
 protected:
  TaskFactoryTest() {
    auto environment = std::make_shared<TaskEnvironment>();
    for (int device = 0; device < 2; ++device) {
      environment->devices.push_back(
          std::make_shared<DeviceThread>("device", 4, std::chrono::minutes(10)));
    }
    environment->callbacks = std::make_shared<InFlight>();
    environment->backend = backend_.get();
    environment->ended = [this](NodeEnded event, bool) { ended_.Set(std::move(event)); };
    tasks_.SetEnvironment(std::move(environment));
  }
  ~TaskFactoryTest() override {
    for (const auto& thread : tasks_.environment().devices)
      EXPECT_TRUE(thread->Stop(Clock::now() + kPatience));
    executables_.Stop();
    loop_.Stop();
  }

  // Of arrays of two floats.
  ShardKey NewShard(uint32_t shard, int device) {
    const auto held = Held<HeldShards>::New();
    const StorageId storage(++last_storage_);
    CreateStorage create{.storage = storage,
                         .session = kSession,
                         .element_type = device::kF32,
                         .dims = {2},
                         .shard_bytes = kShardBytes,
                         .shards = {{shard, device}},
                         .held = held};
    storages_.Create(create);
    return {storage, shard, held};
  }
  std::shared_ptr<store::Slot> SlotOf(const ShardKey& key) const { return storages_.Find(key, 0); }
  ShardKey NewFilled(uint32_t shard, int device, std::vector<float> values) {
    ShardKey key = NewShard(shard, device);
    SlotOf(key)->Fill(FloatsOn(*backend_, device, std::move(values)), store::Sharing::kOwned);
    return key;
  }
  std::vector<float> ValuesOf(const ShardKey& key) {
    const auto content = SlotOf(key)->Wait(Clock::now() + kPatience);
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? ValuesOf(*content->buffer) : std::vector<float>{};
  }
  static std::vector<float> ValuesOf(device::Buffer& buffer) {
    std::vector<float> values(2);
    Answer<absl::Status> copied;
    buffer.CopyToHost(values.data(), kShardBytes,
                      [&copied](absl::Status status) { copied.Set(std::move(status)); });
    EXPECT_EQ(copied.WaitFor(kPatience), absl::OkStatus());
    return values;
  }
  // The node that fills the shard with what has come of the upload.
  void Fill(const ShardKey& made, UploadId upload) {
    tasks_
        .Make(FillUpload{.ordinal = kNode,
                         .session = kSession,
                         .upload = upload,
                         .storage = made.storage,
                         .held = made.held})
        ->Enqueue();
  }
  // The end of the test's only node.
  NodeEnded End() {
    auto ended = ended_.WaitFor(kPatience);
    EXPECT_TRUE(ended.has_value()) << "the node does not end";
    return ended.value_or(NodeEnded{});
  }

  struct Sent {
    SessionId session;
    FetchId fetch;
    uint32_t shard = 0;
    std::vector<float> values;
  };

  const std::unique_ptr<device::SimBackend> backend_ = device::OpenSim({.device_count = 2});
  EventLoop loop_{"test"};
  const LocalStorages storages_{{.name = "worker0", .device_count = 2}, nullptr};
  CollectivePeers peers_{{.identity = {.name = "worker0", .device_count = 2}, .loop = &loop_}};
  Answer<ExecutableLoaded> loaded_;
  LocalExecutables executables_{
      {.backend = backend_.get(), .peers = &peers_, .on_loaded = [this](ExecutableLoaded event) {
         loaded_.Set(std::move(event));
       }}};
  OtherWorkers others_;
  const std::shared_ptr<StagingMemory> staging_ =
      StagingMemory::Make({.bytes_max = kStagingMax, .loop = &loop_});
  std::map<UploadId, UploadStaging::Shards> uploads_;
  Answer<Sent> sent_;
  TaskFactory tasks_{{.backend = backend_.get(),
                      .storages = &storages_,
                      .executables = &executables_,
                      .transfers = &others_,
                      .staging = staging_,
                      .take_upload =
                          [this](SessionId session, UploadId upload) {
                            EXPECT_EQ(session, kSession);
                            return std::exchange(uploads_[upload], {});
                          },
                      .memory_for =
                          [this](SessionId session) {
                            return FetchedShard::Source{.staging = staging_, .session = session};
                          },
                      .send =
                          [this](SessionId session, FetchId fetch, uint32_t shard,
                                 const std::shared_ptr<FetchedShard>& bytes,
                                 const std::function<void(const absl::Status&)>& sent) {
                            sent_.Set({session, fetch, shard, AsFloats(bytes->bytes())});
                            sent(absl::OkStatus());
                          }}};
  Answer<NodeEnded> ended_;
  uint64_t last_storage_ = 0;
};

TEST_F(TaskFactoryTest, ThePartsOfAPutCountAsStagedUntilTheyAreTheDevices) {
  PreparePut put{.ordinal = kNode, .session = kSession};
  put.parts.push_back({NewShard(0, 0), 0, Floats({1, 2})});
  put.parts.push_back({NewShard(3, 1), 1, Floats({3, 4})});
  const std::vector<ShardKey> made = {put.parts[0].to, put.parts[1].to};
  const auto task = tasks_.Make(put);
  EXPECT_EQ(staging_->used(), 2 * kShardBytes);
  EXPECT_EQ(tasks_.put_bytes(), 2 * kShardBytes);
  task->Enqueue();
  const NodeEnded ended = End();
  EXPECT_EQ(ended.ordinal, kNode);
  EXPECT_FALSE(ended.failure.has_value()) << ended.failure->message();
  EXPECT_THAT(ValuesOf(made[0]), ElementsAre(1, 2));
  EXPECT_THAT(ValuesOf(made[1]), ElementsAre(3, 4));
  EXPECT_EQ(staging_->used(), 0u);
}

TEST_F(TaskFactoryTest, APutForWhichThereIsNoRoomFailsWithItsShards_TM2) {
  auto others = staging_->Take(SessionId(6), kStagingMax / 4 * 3, StagingMemory::Order::kIfRoom);
  ASSERT_TRUE(others.ok()) << others.status();
  PreparePut put{.ordinal = kNode, .session = kSession};
  put.parts.push_back({NewShard(0, 0), 0, std::string(kStagingMax / 2, 'a')});
  const ShardKey made = put.parts[0].to;
  tasks_.Make(put)->Enqueue();
  const NodeEnded ended = End();
  ASSERT_TRUE(ended.failure.has_value());
  EXPECT_EQ(wire::ToStatus(*ended.failure).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(SlotOf(made)->failure().has_value());
  EXPECT_EQ(SlotOf(made)->failure()->message(), ended.failure->message());
}

TEST_F(TaskFactoryTest, AnUploadIsMadeOfTheBytesThatItsClientSent) {
  const ShardKey made = NewShard(2, 1);
  const auto bytes = std::make_shared<const std::string>(Floats({5, 6}));
  uploads_[UploadId(9)][2] = {std::as_bytes(std::span(*bytes)), bytes, nullptr};
  uploads_[UploadId(10)][2] = {};
  Fill(made, UploadId(9));
  EXPECT_FALSE(End().failure.has_value());
  EXPECT_THAT(ValuesOf(made), ElementsAre(5, 6));
  EXPECT_TRUE(uploads_[UploadId(9)].empty());
  EXPECT_FALSE(uploads_[UploadId(10)].empty()) << "another upload's bytes";
}

TEST_F(TaskFactoryTest, AShardWithoutBytesFailsItsUpload) {
  const ShardKey made = NewShard(2, 1);
  Fill(made, UploadId(9));
  EXPECT_TRUE(End().failure.has_value());
  EXPECT_TRUE(SlotOf(made)->failure().has_value());
}

TEST_F(TaskFactoryTest, AFetchedShardGoesToItsSessionByItsNumberInTheFetch) {
  tasks_
      .Make(PrepareFetch{.ordinal = kNode,
                         .session = kSession,
                         .fetch = FetchId(11),
                         .parts = {{NewFilled(4, 1, {7, 8}), 1, 2}}})
      ->Enqueue();
  const NodeEnded ended = End();
  EXPECT_FALSE(ended.failure.has_value()) << ended.failure->message();
  EXPECT_TRUE(ended.unsent_shards.empty());
  const auto sent = sent_.WaitFor(milliseconds(0));
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ(sent->session, kSession);
  EXPECT_EQ(sent->fetch, FetchId(11));
  EXPECT_EQ(sent->shard, 2u);
  EXPECT_THAT(sent->values, ElementsAre(7, 8));
}

TEST_F(TaskFactoryTest, AShardThatIsNotHereIsNamedAsUnsent) {
  tasks_
      .Make(PrepareFetch{.ordinal = kNode,
                         .session = kSession,
                         .fetch = FetchId(11),
                         .parts = {{ShardKey{StorageId(99), 4, {}}, 1, 2}}})
      ->Enqueue();
  const NodeEnded ended = End();
  ASSERT_TRUE(ended.failure.has_value());
  EXPECT_THAT(ended.failure->message(), HasSubstr("not held by worker0"));
  EXPECT_THAT(ended.unsent_shards, ElementsAre(2));
}

TEST_F(TaskFactoryTest, ACopyWithinTheWorkerNeedsNoOther) {
  const ShardKey to = NewShard(0, 1);
  PrepareCopy copy{.ordinal = kNode, .session = kSession, .token = "askproof"};
  copy.moves.push_back({{NewFilled(0, 0, {1, 2})}, {to}, 0, 1});
  tasks_.Make(copy)->Enqueue();
  EXPECT_FALSE(End().failure.has_value());
  EXPECT_THAT(ValuesOf(to), ElementsAre(1, 2));
  EXPECT_EQ(SlotOf(to)->Wait(Clock::now())->buffer->device(), 1);
  EXPECT_TRUE(others_.offered.empty() && others_.asked.empty());
}

TEST_F(TaskFactoryTest, ACopyOffersWhatLeavesAndAsksForWhatComes) {
  const ShardKey to = NewShard(3, 1);
  PrepareCopy copy{.ordinal = kNode, .session = kSession, .token = "askproof"};
  copy.sends.push_back({{NewFilled(2, 0, {1, 2})}, 0, 2, DeviceId(900)});
  copy.receives.push_back({{to}, 1, 3, DeviceId(901)});
  const auto task = tasks_.Make(copy);
  auto sender = std::make_shared<wire::Worker>();
  sender->set_incarnation(77);
  task->NamePeers({sender});
  task->Enqueue();
  ASSERT_EQ(others_.offered.size(), 1u);
  EXPECT_EQ(others_.offered[0].key, (TransferKey{kNode, 2}));
  EXPECT_EQ(others_.offered[0].token.ask + others_.offered[0].token.proof, "askproof");
  EXPECT_EQ(others_.offered[0].session, kSession);
  EXPECT_THAT(others_.offered[0].receiver, HasSubstr("900"));
  const auto settled = others_.settled.find({kNode, 2});
  ASSERT_NE(settled, others_.settled.end());
  ASSERT_TRUE(settled->second.ok()) << settled->second.status();
  EXPECT_THAT(ValuesOf(*settled->second->front()), ElementsAre(1, 2));
  ASSERT_EQ(others_.asked.size(), 1u);
  EXPECT_EQ(others_.asked[0].key, (TransferKey{kNode, 3}));
  EXPECT_EQ(others_.asked[0].from.incarnation(), 77u);
  EXPECT_THAT(others_.asked[0].sizes, ElementsAre(kShardBytes));
  others_.offered[0].taken(absl::OkStatus());
  const auto bytes = std::make_shared<const std::string>(Floats({3, 4}));
  others_.asked[0].arrived(
      std::vector<ShardBytes>{{std::as_bytes(std::span(*bytes)), bytes, nullptr}});
  EXPECT_FALSE(End().failure.has_value());
  EXPECT_THAT(ValuesOf(to), ElementsAre(3, 4));
}

TEST_F(TaskFactoryTest, ALaunchMakesTheShardOfEachPositionOfEachResult) {
  const std::string text = "sim 1\nname step\npartitions 1\ncost_us 0\ninput 11 2\noutput 11 2\n";
  auto compiled = backend_->Compile({text, "sim"}, "", std::vector<int>{1});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto executable = Held<ExecutableSlot>::New();
  LoadExecutable load{.executable = ExecutableId(1),
                      .held = executable,
                      .name = "step",
                      .serialized = *(*compiled)->Serialize(),
                      .devices = {1}};
  executables_.Load(load);
  const ShardKey result = NewShard(6, 1);
  ShardKey any_shard = result;
  any_shard.shard = 0;
  tasks_
      .Make(PrepareLaunch{
          .ordinal = kNode,
          .executable = ExecutableId(1),
          .held_executable = executable,
          .positions = {{.position = 6, .device = 1, .arguments = {NewFilled(2, 1, {1, 2})}}},
          .results = {any_shard}})
      ->Enqueue();
  const NodeEnded ended = End();
  EXPECT_FALSE(ended.failure.has_value()) << ended.failure->message();
  EXPECT_EQ(ValuesOf(result).size(), 2u);
  EXPECT_EQ(SlotOf(result)->Wait(Clock::now())->buffer->device(), 1);
}

}  // namespace
}  // namespace gangway::worker
