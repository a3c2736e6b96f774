// Tests a real worker on the XLA CPU plugin, with programs that the test compiles.
#include <gmock/gmock.h>

#include <future>

#include "gangway/collective/execution/collective_call.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"
#include "gangway/worker/service/worker_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kDevices = 8;
const Tensor kFour{{4}, 16};
const Tensor kOne{{1}, 4};

class WorkerPjrtTest : public WorkerHarness {
 protected:
  void SetUp() override {
    Start(kDevices, [] { return device::OpenTestPlugin(kDevices); });
  }

  // Compiles in a separate client, as the compiler process does, and loads in the worker.
  void CompileAndLoad(uint64_t id, const device::TestProgram& program, int device_count,
                      const std::vector<Tensor>& results) {
    static device::Backend* const compiler = (*device::OpenTestPlugin(kDevices)).release();
    std::vector<int> devices;
    for (int i = 0; i < device_count; ++i) devices.push_back(i);
    auto executable =
        compiler->Compile({program.code, program.format}, program.compile_options, devices);
    ASSERT_TRUE(executable.ok()) << executable.status();
    LoadExecutable(id, "test", *(*executable)->Serialize(), device_count, results);
    ASSERT_EQ(WaitLoaded(id).code(), 0) << loaded_[id].DebugString();
  }
};

TEST_F(WorkerPjrtTest, RegistersItsDevices) {
  EXPECT_EQ(hello_.role(), wire::ROLE_WORKER);
  EXPECT_EQ(hello_.worker().device_count(), 8u);
  EXPECT_EQ(hello_.worker().platform(), "cpu");
  EXPECT_EQ(hello_.worker().data_address(), "worker-data");
  EXPECT_NE(hello_.worker().incarnation(), 0u);
}

TEST_F(WorkerPjrtTest, LoadsUploadsRunsAndFetches) {
  OpenStream();
  CompileAndLoad(1, device::UnaryProgram(), 1, {kFour});
  Upload(1, 10, kFour, {Floats({1, 2, 3, 4})});
  LaunchNode(2, 1, {10}, {11}, 1);
  LaunchNode(3, 1, {11}, {12}, 1);
  FetchNode(4, 12, kFour, 1);
  Release({2, 3, 4});
  EXPECT_THAT(AsFloats(ReceiveFetch(4, 1).bytes[0]), ElementsAre(3, 4, 5, 6));
  for (uint64_t ordinal : {2, 3, 4}) EXPECT_EQ(WaitDone(ordinal).code(), 0);
}

TEST_F(WorkerPjrtTest, PreparesWhileTheUploadIsWithheld_DF2) {
  OpenStream();
  CompileAndLoad(1, device::UnaryProgram(), 1, {kFour});
  UploadNode(1, 100, kFour, 1);
  for (uint64_t i = 0; i < 10; ++i) LaunchNode(2 + i, 1, {100 + i}, {101 + i}, 1);
  wire::Usage usage = Probe();  // answered after all items that came before it
  EXPECT_EQ(usage.nodes(), 11u);
  EXPECT_EQ(usage.storages(), 11u) << "a launch waited with its host-side work for its input";
  EXPECT_TRUE(dones_.empty());
  Release({1});
  SendShard(1, 0, Floats({0, 0, 0, 0}));
  EXPECT_EQ(WaitDone(1).code(), 0);
  FetchNode(12, 110, kFour, 1);
  Release({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_THAT(AsFloats(ReceiveFetch(12, 1).bytes[0]), ElementsAre(10, 10, 10, 10));
}

// Small programs run in their caller's thread.
TEST(CollectiveCall, FailsOnAThreadThatServes) {
  auto backend = device::OpenTestPlugin(1);
  ASSERT_TRUE(backend.ok()) << backend.status();
  device::OfferHandlers(**backend, std::vector{collective::CollectiveHandlers()});
  const device::TestProgram program =
      device::Mlir(R"(func.func public @main(%chain: tensor<4xf32>) -> tensor<4xf32> {
    %next = stablehlo.custom_call @gangway.collective(%chain)
        {api_version = 4 : i32, backend_config = {number = 0 : i64}}
        : (tensor<4xf32>) -> tensor<4xf32>
    return %next : tensor<4xf32>
  })");
  auto executable =
      (*backend)->Compile({program.code, program.format}, program.compile_options, {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto run = [&] {
    auto argument = device::MakeBuffer(**backend, 0, {1, 2, 3, 4});
    device::Buffer* pointer = argument->get();
    device::ExecuteOptions options;
    options.launch_id = 4711;
    auto outputs = (*executable)->ExecuteOn(0, {&pointer, 1}, options, nullptr);
    return outputs.ok() ? device::ReadFloats(*(*outputs)[0]).status() : outputs.status();
  };
  EXPECT_THAT(std::string(run().message()), HasSubstr("launch 4711 has no member"));
  EventLoop loop("test");
  std::promise<absl::Status> ended;
  loop.Post([&] { ended.set_value(run()); });
  auto status = ended.get_future();
  ASSERT_EQ(status.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(std::string(status.get().message()),
              HasSubstr("on a thread that serves other processes"));
}

TEST_F(WorkerPjrtTest, AllReduceOverEightDevices) {
  OpenStream();
  CompileAndLoad(1, device::GangProgram(kDevices), kDevices, {kOne});
  std::vector<std::string> shards;
  for (int i = 0; i < kDevices; ++i) shards.push_back(Floats({static_cast<float>(i)}));
  Upload(1, 10, kOne, shards);
  std::vector<uint64_t> ordinals;
  for (uint64_t i = 0; i < 20; ++i) {  // all read the same array: several gangs in flight at once
    LaunchNode(2 + i, 1, {10}, {20 + i}, kDevices);
    ordinals.push_back(2 + i);
  }
  FetchNode(50, 39, kOne, kDevices);
  ordinals.push_back(50);
  Release(ordinals);
  Fetched fetched = ReceiveFetch(50, kDevices);
  for (int i = 0; i < kDevices; ++i) {
    EXPECT_THAT(AsFloats(fetched.bytes[i]), ElementsAre(i + 28 + 1000 * i)) << "shard " << i;
  }
  for (uint64_t ordinal : ordinals) EXPECT_EQ(WaitDone(ordinal).code(), 0);
}

TEST_F(WorkerPjrtTest, MoreLaunchesThanTheRuntimeTakes) {
  OpenStream();
  CompileAndLoad(1, device::UnaryProgram(), 1, {kFour});
  Upload(1, 1000, kFour, {Floats({0, 0, 0, 0})});
  std::vector<uint64_t> ordinals;
  for (uint64_t i = 0; i < 300; ++i) {
    LaunchNode(2 + i, 1, {1000 + i}, {1001 + i}, 1);
    ordinals.push_back(2 + i);
  }
  FetchNode(500, 1300, kFour, 1);
  ordinals.push_back(500);
  Release(ordinals);
  EXPECT_THAT(AsFloats(ReceiveFetch(500, 1).bytes[0]), ElementsAre(300, 300, 300, 300));
}

TEST_F(WorkerPjrtTest, DonatedArgumentsGiveTheirMemoryBack) {
  OpenStream();
  CompileAndLoad(1, device::DonatingProgram(), 1, {kFour});
  Upload(1, 10, kFour, {Floats({1, 1, 1, 1})});
  FetchNode(2, 10, kFour, 1);  // reads before the donation takes it
  LaunchNode(3, 1, {10}, {11}, 1, {0});
  LaunchNode(4, 1, {10}, {12}, 1);
  FetchNode(5, 11, kFour, 1);
  Release({2, 3, 4, 5});
  EXPECT_THAT(AsFloats(ReceiveFetch(2, 1).bytes[0]), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(AsFloats(ReceiveFetch(5, 1).bytes[0]), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(WaitDone(4).message(), HasSubstr("donated to gang 3"));
  EXPECT_EQ(WaitDone(3).code(), 0);
  EXPECT_EQ(Probe().devices(0).bytes(), 16u) << "only the result is left";
}

TEST_F(WorkerPjrtTest, WithoutDonationTheArgumentSurvives) {
  OpenStream();
  CompileAndLoad(1, device::DonatingProgram(), 1, {kFour});
  Upload(1, 10, kFour, {Floats({1, 1, 1, 1})});
  LaunchNode(2, 1, {10}, {11}, 1);
  FetchNode(3, 10, kFour, 1);
  Release({2, 3});
  EXPECT_THAT(AsFloats(ReceiveFetch(3, 1).bytes[0]), ElementsAre(1, 1, 1, 1));
}

TEST_F(WorkerPjrtTest, CopiesBetweenLocalDevicesAndInPlace) {
  OpenStream();
  CompileAndLoad(1, device::DonatingProgram(), 1, {kFour});
  Upload(1, 10, kFour, {Floats({7, 8, 9, 10})});
  auto copy = [&](uint64_t ordinal, uint64_t to, int device) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Copy& body = *item.mutable_node()->mutable_copy();
    *body.add_arrays()->mutable_source() = Ref(10, 1);
    body.mutable_arrays(0)->set_storage(to);
    body.mutable_arrays(0)->mutable_spec()->set_shard_bytes(Spec(kFour, 1).shard_bytes());
    *body.mutable_source_devices() = Spec(kFour, 1).devices();
    *body.mutable_devices() = Spec(kFour, 1, device).devices();
    Item(item);
  };
  copy(2, 11, 3);
  copy(3, 12, 0);
  LaunchNode(4, 1, {12}, {13}, 1,
             {0});  // donates the array that stayed in place: its other owner keeps the contents
  FetchNode(5, 10, kFour, 1);
  wire::IslandItem fetch = NodeItem(6);
  *fetch.mutable_node()->mutable_fetch()->mutable_source() = Ref(11, 1);
  *fetch.mutable_node()->mutable_fetch()->mutable_devices() = Spec(kFour, 1, 3).devices();
  fetch.mutable_node()->mutable_fetch()->set_fetch(6);
  Item(fetch);
  Release({2, 3, 4, 5, 6});
  EXPECT_THAT(AsFloats(ReceiveFetch(5, 1).bytes[0]), ElementsAre(7, 8, 9, 10));
  EXPECT_THAT(AsFloats(ReceiveFetch(6, 1).bytes[0]), ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(WaitDone(4).code(), 0);
}

TEST_F(WorkerPjrtTest, SpoiledUploadReachesTheFetchUnchanged_ER1) {
  OpenStream();
  CompileAndLoad(1, device::GangProgram(kDevices), kDevices, {kOne});
  UploadNode(1, 10, kOne, kDevices);
  LaunchNode(2, 1, {10}, {11}, kDevices);
  FetchNode(3, 11, kOne, kDevices);
  Release({1});
  wire::IslandItem cancel;
  cancel.mutable_cancel()->add_ordinals(1);
  cancel.mutable_cancel()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kOutOfRange));
  cancel.mutable_cancel()->mutable_failure()->set_message("the file ends early");
  Item(cancel);
  EXPECT_EQ(WaitDone(1).message(), "the file ends early");
  Release({2, 3});
  EXPECT_EQ(WaitDone(2).message(), "the file ends early");
  Fetched fetched = ReceiveFetch(3, kDevices);
  ASSERT_EQ(fetched.failures.size(), 8u) << "all shards together";
  EXPECT_EQ(fetched.failures[0].message(), "the file ends early");
  EXPECT_TRUE(fetched.bytes.empty());
}

TEST_F(WorkerPjrtTest, WrongShapesFailTheGangAndNothingElse_ER2) {
  OpenStream();
  CompileAndLoad(1, device::UnaryProgram(), 1, {kFour});
  Upload(1, 10, {{2}, 8}, {Floats({1, 2})});
  Upload(2, 20, kFour, {Floats({1, 2, 3, 4})});
  LaunchNode(3, 1, {10}, {11}, 1);
  LaunchNode(4, 1, {11}, {12}, 1);
  LaunchNode(5, 1, {20}, {21}, 1);
  FetchNode(6, 21, kFour, 1);
  Release({3, 4, 5, 6});
  wire::Failure failure = WaitDone(3);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kInvalidArgument))
      << failure.message();
  EXPECT_EQ(failure.program(), "test");
  EXPECT_EQ(failure.gang(), 3u);
  EXPECT_EQ(failure.worker(), "island0/worker0");
  EXPECT_EQ(failure.incarnation(), hello_.worker().incarnation());
  EXPECT_EQ(failure.device(), 100u);
  EXPECT_EQ(WaitDone(4).SerializeAsString(), failure.SerializeAsString());
  EXPECT_THAT(AsFloats(ReceiveFetch(6, 1).bytes[0]), ElementsAre(2, 3, 4, 5));
}

TEST_F(WorkerPjrtTest, BadExecutableIsReportedAndItsGangsFail) {
  LoadExecutable(1, "garbage", "not an executable", 1, {kFour});
  LaunchNode(1, 1, {}, {11}, 1);
  Release({1});  // possibly before the load has failed: then the device thread finds the failure
  EXPECT_NE(WaitDone(1).code(), 0);
  EXPECT_NE(WaitLoaded(1).code(), 0);
  EXPECT_EQ(WaitDone(1).program(), "garbage");
}

TEST_F(WorkerPjrtTest, BigArraysGoInPieces) {
  OpenStream();
  Tensor big{{3 << 20}, uint64_t{12} << 20};
  std::string bytes(big.bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + (i >> 13));
  Upload(1, 10, big, {bytes});
  FetchNode(2, 10, big, 1);
  Release({2});
  Fetched fetched = ReceiveFetch(2, 1);
  EXPECT_TRUE(fetched.bytes[0] == bytes);
  EXPECT_EQ(fetched.pieces, 12u);
  EXPECT_LE(fetched.biggest_piece, size_t{1} << 20);
}

TEST_F(WorkerPjrtTest, EmptyShardIsOneLastChunk) {
  OpenStream();
  Upload(1, 10, {{0}, 0}, {""});
  FetchNode(2, 10, {{0}, 0}, 1);
  Release({2});
  Fetched fetched = ReceiveFetch(2, 1);
  EXPECT_EQ(fetched.pieces, 1u);
  EXPECT_EQ(fetched.bytes[0], "");
  EXPECT_EQ(WaitDone(2).code(), 0);
}

TEST_F(WorkerPjrtTest, CancelledWorkNeverRuns) {
  OpenStream();
  CompileAndLoad(1, device::UnaryProgram(), 1, {kFour});
  Upload(1, 10, kFour, {Floats({1, 2, 3, 4})});
  LaunchNode(2, 1, {10}, {11}, 1);
  FetchNode(3, 11, kFour, 1);
  wire::IslandItem cancel;
  cancel.mutable_cancel()->add_ordinals(2);
  cancel.mutable_cancel()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kDataLoss));
  cancel.mutable_cancel()->mutable_failure()->set_message("a worker died");
  Item(cancel);
  Release({3});
  EXPECT_EQ(ReceiveFetch(3, 1).failures[0].message(), "a worker died");
  EXPECT_EQ(WaitDone(3).message(), "a worker died");
  EXPECT_FALSE(dones_.contains(2));
}

TEST_F(WorkerPjrtTest, SessionEndAndFreeLeaveNothing_OB2) {
  OpenStream();
  CompileAndLoad(1, device::GangProgram(kDevices), kDevices, {kOne});
  Upload(1, 10, kOne, std::vector<std::string>(kDevices, Floats({1})));
  LaunchNode(2, 1, {10}, {11}, kDevices);
  Release({2});
  EXPECT_EQ(WaitDone(2).code(), 0);
  UploadNode(3, 12, kFour, 1);
  Release({3});  // its bytes never arrive
  EXPECT_EQ(Probe().devices(5).bytes(), 8u);
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession.number());
  Item(end);
  EXPECT_EQ(WaitDone(3).code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_TRUE(data_inbox_.WaitClosed());
  Free({10, 11, 12});
  wire::Usage usage = Probe();
  EXPECT_EQ(usage.nodes(), 0u);
  EXPECT_EQ(usage.storages(), 0u);
  for (const wire::DeviceUsage& device : usage.devices()) EXPECT_EQ(device.bytes(), 0u);
  EXPECT_EQ(usage.devices(5).peak_bytes(), 8u);
}

TEST_F(WorkerPjrtTest, AFetchWhoseStreamIsGoneFails) {
  OpenStream();
  Upload(1, 10, kFour, {Floats({1, 2, 3, 4})});
  data_->Close(absl::CancelledError("the client is gone"));
  FetchNode(2, 10, kFour, 1);
  Release({2});
  const wire::Failure failure = WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(failure.message(), HasSubstr("data stream"));
}

TEST_F(WorkerPjrtTest, StreamWithoutAHelloIsRefused) {
  auto link = hub_->Connect("worker-data", data_inbox_.Events(&data_loop_), kPatience);
  ASSERT_TRUE(link.ok());
  data_ = *std::move(link);
  SendChunk({});
  ASSERT_TRUE(
      data_inbox_.Until([](wire::Frame& frame) { return frame.hello_reply().has_failure(); }));
  EXPECT_TRUE(data_inbox_.WaitClosed());
}

TEST_F(WorkerPjrtTest, StreamWithAnotherSessionsTokenIsRefused_OB3) {
  auto link = hub_->Connect("worker-data", data_inbox_.Events(&data_loop_), kPatience);
  ASSERT_TRUE(link.ok());
  data_ = *std::move(link);
  wire::Frame frame;
  frame.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
  frame.mutable_hello()->set_role(wire::ROLE_DATA);
  frame.mutable_hello()->set_session(kSession.number());
  frame.mutable_hello()->set_token(
      transport::DataToken(kDataKey, SessionId(kSession.number() + 1)));
  ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  ASSERT_TRUE(data_inbox_.Until([](wire::Frame& reply) {
    return reply.hello_reply().failure().code() ==
           static_cast<int>(absl::StatusCode::kPermissionDenied);
  }));
  EXPECT_TRUE(data_inbox_.WaitClosed());
}

TEST_F(WorkerPjrtTest, EndsWhenTheSchedulerIsGone) {
  control_->Close(absl::UnavailableError("the scheduler crashed"));
  worker_.join();
  EXPECT_EQ(ended_with_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended_with_.message()), HasSubstr("scheduler"));
}

TEST_F(WorkerPjrtTest, RefusedWorkerEndsWithTheReason) {
  wire::Frame reply;
  reply.mutable_hello_reply()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kFailedPrecondition));
  reply.mutable_hello_reply()->mutable_failure()->set_message("wrong version");
  ASSERT_TRUE(control_->Send(reply).ok());
  worker_.join();
  EXPECT_THAT(std::string(ended_with_.message()), HasSubstr("wrong version"));
}

}  // namespace
}  // namespace gangway::worker
