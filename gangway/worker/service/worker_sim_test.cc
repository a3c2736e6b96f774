// Tests a real worker on simulated devices: cases that need injected faults or a slow client.
#include <gmock/gmock.h>

#include <cstring>
#include <string>

#include "absl/strings/match.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/shm/mapped_segments.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/worker/service/transfer/fetched_shard.h"
#include "gangway/worker/service/worker_test_util.h"

namespace gangway::worker {
namespace {

constexpr int kDevices = 4;
constexpr std::chrono::milliseconds kBeat{10};
const Tensor kFour{{4}, 16};

class WorkerSimTest : public WorkerHarness {
 protected:
  void SetUp() override {
    auto sim = device::OpenSim(
        {.device_count = kDevices, .collectives_block_threads = collectives_block_threads_});
    sim_ = sim.get();
    auto shared = std::make_shared<std::unique_ptr<device::Backend>>(std::move(sim));
    WorkerOptions options;
    options.heartbeat_interval = kBeat;
    options.is_guest = is_guest_;
    options.wait_limit = wait_limit_;
    options.host_bytes_max = host_bytes_max_;
    Start(
        kDevices,
        [shared]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
          return std::move(*shared);
        },
        options);
  }

  void CompileAndLoad(uint64_t id, const std::string& text, int device_count) {
    auto compiler = device::OpenSim({.device_count = kDevices});
    std::vector<int> devices;
    for (int i = 0; i < device_count; ++i) devices.push_back(i);
    auto executable = compiler->Compile({text, "sim"}, "", devices);
    ASSERT_TRUE(executable.ok()) << executable.status();
    LoadExecutable(id, "simulated", *(*executable)->Serialize(), device_count, {kFour},
                   device_count > 1);
    ASSERT_EQ(WaitLoaded(id).code(), 0);
  }

  device::SimBackend* sim_ = nullptr;
  bool is_guest_ = false;
  bool collectives_block_threads_ = false;
  std::chrono::milliseconds wait_limit_ = std::chrono::minutes(10);
  std::optional<uint64_t> host_bytes_max_;
};

constexpr char kUnary[] = "sim 1\nname step\ncost_us 100\ninput 11 4\noutput 11 4\n";
constexpr char kApart[] = "sim 1\nname apart\npartitions 4\ncost_us 100\ninput 11 4\noutput 11 4\n";
constexpr char kCollective[] =
    "sim 1\nname gang\npartitions 4\ncollective\ncost_us 100\ninput 11 4\noutput 11 4\n";

class GateTest : public WorkerSimTest {
 protected:
  void SetUp() override {
    collectives_block_threads_ = true;
    wait_limit_ = std::chrono::milliseconds(200);
    WorkerSimTest::SetUp();
  }
};

class PatientGateTest : public WorkerSimTest {
 protected:
  void SetUp() override {
    collectives_block_threads_ = true;
    WorkerSimTest::SetUp();
  }
};

class LateWelcomeTest : public WorkerSimTest {
 protected:
  void SetUp() override {
    welcome_late_ = true;
    WorkerSimTest::SetUp();
  }
};

class RestartedWorkerTest : public WorkerSimTest {
 protected:
  void SetUp() override {
    welcome_late_ = true;
    ended_ = {SessionId(3), kSession};
    WorkerSimTest::SetUp();
  }
};

// Also by a stream that came before the worker had its welcome.
TEST_F(RestartedWorkerTest, TokensOfSessionsThatEndedBeforeItsStartOpenNothing_OB2) {
  for (const SessionId session : {kSession, SessionId(3), SessionId(4)}) {
    AskForStream(session);
    if (session == kSession) Welcome();
    std::string refusal;
    ASSERT_TRUE(data_inbox_.Until([&](wire::Frame& frame) {
      refusal = frame.hello_reply().failure().message();
      return frame.has_hello_reply();
    }));
    EXPECT_EQ(absl::StrContains(refusal, "has ended"), session != SessionId(4)) << refusal;
  }
}

// A client may learn of a worker before the worker receives its welcome, whose key checks tokens.
TEST_F(LateWelcomeTest, StreamsThatComeBeforeTheWelcomeWaitForIt) {
  AskForStream();
  Welcome();
  ASSERT_TRUE(data_inbox_.Until([](wire::Frame& frame) {
    EXPECT_FALSE(frame.hello_reply().has_failure()) << frame.hello_reply().failure().message();
    return frame.has_hello_reply();
  }));
}

TEST_F(WorkerSimTest, SameResultEveryTime_DF3) {
  OpenStream();
  CompileAndLoad(1, kCollective, kDevices);
  Upload(1, 10, kFour,
         {Floats({1, 2, 3, 4}), Floats({5, 6, 7, 8}), Floats({9, 9, 9, 9}), Floats({0, 0, 0, 1})});
  LaunchNode(2, 1, {10}, {11}, kDevices);
  LaunchNode(3, 1, {10}, {12}, kDevices);
  FetchNode(4, 11, kFour, kDevices);
  FetchNode(5, 12, kFour, kDevices);
  Release({3, 2, 4, 5});
  Fetched first = ReceiveFetch(4, kDevices);
  Fetched second = ReceiveFetch(5, kDevices);
  EXPECT_EQ(first.bytes.size(), 4u);
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_NE(first.bytes[0], first.bytes[1]);
}

TEST_F(WorkerSimTest, FailureOnTheDeviceIsTheRootCauseOfAChain_ER1) {
  OpenStream();
  CompileAndLoad(1, kUnary, 1);
  Upload(1, 10, kFour, {Floats({1, 2, 3, 4})});
  sim_->Inject({.kind = device::SimFault::Kind::kFail,
                .device = 0,
                .error = absl::InternalError("a bit flipped")});
  for (uint64_t i = 0; i < 5; ++i) LaunchNode(2 + i, 1, {10 + i}, {11 + i}, 1);
  LaunchNode(7, 1, {10}, {30}, 1);  // depends on none of them
  FetchNode(8, 15, kFour, 1);
  FetchNode(9, 30, kFour, 1);
  Release({2, 3, 4, 5, 6, 7, 8, 9});
  wire::Failure root = WaitDone(2);
  EXPECT_THAT(root.message(), ::testing::HasSubstr("a bit flipped"));
  EXPECT_EQ(root.gang(), 2u);
  EXPECT_EQ(root.device(), 100u);
  EXPECT_EQ(root.program(), "simulated");
  for (uint64_t ordinal : {3, 4, 5, 6, 8}) {
    EXPECT_EQ(WaitDone(ordinal).SerializeAsString(), root.SerializeAsString()) << ordinal;
  }
  EXPECT_EQ(ReceiveFetch(8, 1).failures[0].SerializeAsString(), root.SerializeAsString());
  EXPECT_EQ(WaitDone(7).code(), 0);
  EXPECT_EQ(ReceiveFetch(9, 1).bytes.size(), 1u);
}

// While a gang with collectives does not end: those that read its results, themselves or through another gang, are
// enqueued behind it, and one that does not read them waits no longer than the limit.
TEST_F(GateTest, OnlyAGangThatDoesNotReadTheLastOnesResultsWaitsAtTheGate_TM_1) {
  OpenStream();
  CompileAndLoad(1, kCollective, kDevices);
  CompileAndLoad(2, kUnary, 1);
  Upload(1, 10, kFour, std::vector<std::string>(kDevices, Floats({1, 2, 3, 4})));
  Upload(2, 20, kFour, {Floats({1, 2, 3, 4})});
  sim_->Inject({.kind = device::SimFault::Kind::kHang, .device = 0});
  LaunchNode(3, 1, {10}, {11}, kDevices);  // does not end
  LaunchNode(4, 1, {11}, {12}, kDevices);  // reads its results
  LaunchNode(5, 2, {12}, {21}, 1);         // no collectives; reads one of those
  LaunchNode(6, 1, {10}, {13}, kDevices);
  Release({3, 4, 5, 6});
  wire::Failure late = WaitDone(6);
  EXPECT_EQ(late.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(late.message(), ::testing::HasSubstr("Gang 4 has not ended"));
  sim_->ReleaseHung();
  for (uint64_t ordinal : {3, 4, 5}) EXPECT_EQ(WaitDone(ordinal).code(), 0) << ordinal;
  LaunchNode(7, 1, {10}, {14}, kDevices);
  Release({7});
  EXPECT_EQ(WaitDone(7).code(), 0) << "the gate is open";
}

// An argument of one member fails after the other members stand in a collective, which the runtime cannot end.
TEST_F(WorkerSimTest, OnceAMemberExecutesSoDoAllWhateverBecomesOfTheirArguments_ER2) {
  OpenStream();
  CompileAndLoad(1, kCollective, kDevices);
  CompileAndLoad(2, kUnary, 1);
  CompileAndLoad(3, kApart, kDevices);
  Upload(1, 10, kFour, std::vector<std::string>(kDevices, Floats({1, 2, 3, 4})));
  sim_->Inject({.kind = device::SimFault::Kind::kHang, .device = 0});
  sim_->Inject({.kind = device::SimFault::Kind::kFail,
                .device = 0,
                .error = absl::InternalError("a bit flipped")});
  UploadNode(2, 20, kFour, 1);
  LaunchNode(3, 3, {10}, {11}, kDevices);  // hangs on device 0, then fails there
  LaunchNode(4, 2, {20}, {21}, 1);         // holds device 0 up until its bytes come
  LaunchNode(5, 1, {11}, {12}, kDevices);
  FetchNode(6, 10, kFour, kDevices);
  Release({2, 3, 4, 5, 6});
  EXPECT_EQ(ReceiveFetch(6, kDevices - 1).bytes.size(), kDevices - 1u) << "the others are past 5";
  sim_->ReleaseHung();
  EXPECT_NE(WaitDone(3).code(), 0);
  SendShard(2, 0, Floats({5, 6, 7, 8}));
  EXPECT_THAT(WaitDone(5).message(), ::testing::HasSubstr("a bit flipped"));
  EXPECT_EQ(WaitDone(4).code(), 0);
  EXPECT_EQ(WaitDone(6).code(), 0);
}

// Not when the gang in the device has ended.
TEST_F(PatientGateTest, AFetchThatWaitsAtTheGateFailsWithItsInput_ER1) {
  OpenStream();
  CompileAndLoad(1, kCollective, kDevices);
  Upload(1, 10, kFour, std::vector<std::string>(kDevices, Floats({1, 2, 3, 4})));
  sim_->Inject({.kind = device::SimFault::Kind::kHang, .device = 0});
  LaunchNode(2, 1, {10}, {11}, kDevices);  // does not end
  UploadNode(3, 20, kFour, 1);             // its bytes do not come
  FetchNode(4, 20, kFour, 1);
  FetchNode(5, 10, kFour, 1);
  Release({2, 3, 4, 5});
  EXPECT_EQ(WaitDone(5).code(), 0) << "the fetch before it waits at the gate";
  wire::IslandItem item;
  item.mutable_cancel()->add_ordinals(3);
  item.mutable_cancel()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  item.mutable_cancel()->mutable_failure()->set_message("waited for the client");
  Item(item);
  EXPECT_EQ(WaitDone(4).message(), "waited for the client");
  sim_->ReleaseHung();
  EXPECT_EQ(WaitDone(2).code(), 0);
}

TEST_F(WorkerSimTest, OneFailedMemberSpoilsAllShards) {
  OpenStream();
  CompileAndLoad(1, kCollective, kDevices);
  Upload(1, 10, kFour, std::vector<std::string>(kDevices, Floats({1, 2, 3, 4})));
  sim_->Inject({.kind = device::SimFault::Kind::kFail,
                .device = 2,
                .error = absl::InternalError("device lost")});
  LaunchNode(2, 1, {10}, {11}, kDevices);
  Release({2});
  EXPECT_NE(WaitDone(2).code(), 0);
  FetchNode(3, 11, kFour, kDevices);
  Release({3});
  EXPECT_EQ(ReceiveFetch(3, kDevices).failures.size(), 4u);
}

TEST_F(WorkerSimTest, HeartbeatsGoOnWhileADeviceHangs) {
  OpenStream();
  CompileAndLoad(1, kUnary, 1);
  Upload(1, 10, kFour, {Floats({1, 2, 3, 4})});
  sim_->Inject({.kind = device::SimFault::Kind::kHang, .device = 0});
  std::vector<uint64_t> ordinals;
  for (uint64_t i = 0; i < 50; ++i) {  // more than the device takes
    LaunchNode(2 + i, 1, {10}, {20 + i}, 1);
    ordinals.push_back(2 + i);
  }
  Release(ordinals);
  int before = heartbeats_;
  WatchReports([&] { return heartbeats_ >= before + 20; });
  EXPECT_EQ(Probe().nodes(), 50u) << "the loop answers, and nothing has ended";
  sim_->ReleaseHung();
  for (uint64_t ordinal : ordinals) EXPECT_EQ(WaitDone(ordinal).code(), 0);
}

// It has no more to say than that its process lives, which another worker says as well.
class GuestTest : public WorkerSimTest {
 protected:
  GuestTest() { is_guest_ = true; }
};

TEST_F(GuestTest, AGuestWithNothingToTellSendsEverySecondHeartbeat) {
  constexpr uint64_t kGapNs = 2 * std::chrono::nanoseconds(kBeat).count();
  int beats = 0;
  uint64_t last_ns = 0;
  EXPECT_TRUE(control_inbox_.Until([&](wire::Frame& frame) {
    if (!frame.has_heartbeat()) return false;
    const uint64_t now_ns = frame.heartbeat().time_ns();
    EXPECT_GE(now_ns - last_ns, kGapNs);
    last_ns = now_ns;
    return ++beats == 10;
  }));
}

TEST_F(WorkerSimTest, SlowClientStopsNobody) {
  OpenStream();
  Tensor big{{4 << 20}, uint64_t{16} << 20};
  Upload(1, 10, big, {std::string(big.bytes, 'x')});
  std::vector<uint64_t> ordinals;
  for (uint64_t i = 0; i < 24; ++i) {  // 384 MiB, more than a link queues
    FetchNode(2 + i, 10, big, 1);
    ordinals.push_back(2 + i);
  }
  Mutex mutex;
  CondVar changed;
  bool go = false;
  data_loop_.Post([&] {  // the client reads nothing until `go`
    MutexLock lock(mutex);
    changed.WaitFor(mutex, kPatience, [&] { return go; });
  });
  Release(ordinals);
  EXPECT_GT(Probe().nodes(), 0u) << "the link took everything: nothing was held back";
  {
    MutexLock lock(mutex);
    go = true;
    changed.NotifyAll();
  }
  for (uint64_t ordinal : ordinals) {
    EXPECT_EQ(ReceiveFetch(ordinal, 1).bytes[0].size(), big.bytes);
    EXPECT_EQ(WaitDone(ordinal).code(), 0);
  }
}

TEST_F(WorkerSimTest, ACancelledUploadEndsAndItsLateBytesCostNothing_TM1) {
  OpenStream();
  Tensor big{{1 << 18}, uint64_t{1} << 20};
  UploadNode(1, 10, big, 2);
  Release({1});
  SendShard(1, 0, std::string(big.bytes, 'x'));
  wire::Bulk half;
  half.mutable_name()->set_session(kSession.number());
  half.mutable_name()->set_upload(1);
  half.mutable_name()->set_shard(1);
  half.mutable_bytes()->set_data(std::string(1000, 'y'));
  SendChunk(half);
  wire::IslandItem item;
  item.mutable_cancel()->add_ordinals(1);
  item.mutable_cancel()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  item.mutable_cancel()->mutable_failure()->set_message("waited for the client");
  Item(item);
  wire::Failure failure = WaitDone(1);
  EXPECT_EQ(failure.message(), "waited for the client");
  EXPECT_EQ(failure.worker(), "island0/worker0");
  half.mutable_bytes()->set_offset(1000);  // the client does not know of the cancel yet
  half.mutable_bytes()->set_last(true);
  SendChunk(half);
  Upload(2, 11, big, {std::string(big.bytes, 'z')});  // the stream is still good
}

// A worker with little host memory for bytes on their way.
class SmallStagingTest : public WorkerSimTest {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  void SetUp() override {
    host_bytes_max_ = 4 * kMiB;
    WorkerSimTest::SetUp();
  }
  static wire::Bulk First(uint64_t upload, uint64_t total) {
    wire::Bulk chunk;
    chunk.mutable_name()->set_session(kSession.number());
    chunk.mutable_name()->set_upload(upload);
    chunk.mutable_bytes()->set_total(total);
    chunk.mutable_bytes()->set_data("x");
    return chunk;
  }
  const Tensor kOneMiB{{kMiB / 4}, kMiB};
};

TEST_F(SmallStagingTest, TM2_AnUploadBeyondTheMemoryIsRefusedWithTheSizesAndTheStreamGoesOn) {
  OpenStream();
  Tensor big{{kMiB}, 4 * kMiB};
  for (uint64_t i = 1; i <= 3; ++i) {  // the bytes come before, while and after the node waits
    if (i == 1) SendChunk(First(i, big.bytes));
    UploadNode(i, i, big, 1);
    if (i == 2) SendChunk(First(i, big.bytes));
    Release({i});
    if (i == 3) SendChunk(First(i, big.bytes));
    const wire::Failure failure = WaitDone(i);
    EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(failure.message(), ::testing::HasSubstr("4194304 bytes")) << failure.message();
    EXPECT_EQ(failure.worker(), "island0/worker0");
  }
  EXPECT_EQ(Probe().data().staged_bytes(), 0u);
  Upload(9, 9, kOneMiB, {std::string(kMiB, 'z')});  // the same stream
  EXPECT_EQ(Probe().data().staged_bytes_max(), 4 * kMiB);
}

TEST_F(WorkerSimTest, WhatIsPutIsThereForItsReadersAtOnce) {
  OpenStream();
  CompileAndLoad(1, kUnary, 1);
  std::vector<std::string> arrays;
  for (int i = 0; i < 10; ++i) arrays.push_back(Floats({1.0f * static_cast<float>(i), 2, 3, 4}));
  PutNode(1, 10, kFour, arrays);
  LaunchNode(2, 1, {13}, {30}, 1);
  for (uint64_t i = 0; i < 10; ++i) FetchNode(3 + i, 10 + i, kFour, 1);
  FetchNode(20, 30, kFour, 1);
  Release({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20});
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(ReceiveFetch(3 + i, 1).bytes[0], arrays[i]);
  EXPECT_EQ(ReceiveFetch(20, 1).failures.size(), 0u);
  EXPECT_EQ(WaitDone(1).code(), 0);
  EXPECT_EQ(WaitDone(2).code(), 0);
  EXPECT_EQ(Probe().data().staged_bytes(), 0u);
}

// Bytes wait for the release of their node, in the memory of the session.
TEST_F(SmallStagingTest, TM2_APutBeyondTheMemoryFailsWithTheSizesAndSoDoItsReaders) {
  OpenStream();
  PutNode(1, 10, kOneMiB, {std::string(kMiB, 'a'), std::string(kMiB, 'b')});
  EXPECT_EQ(Probe().data().staged_bytes(), 2 * kMiB);
  PutNode(2, 20, kOneMiB, {std::string(kMiB, 'c'), std::string(kMiB, 'd')});
  FetchNode(3, 21, kOneMiB, 1);
  Release({2, 3});
  const wire::Failure failure = WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(failure.message(), ::testing::HasSubstr("2097152 bytes")) << failure.message();
  EXPECT_EQ(failure.gang(), 2u);
  EXPECT_EQ(WaitDone(3).message(), failure.message());
  Release({1});
  EXPECT_EQ(WaitDone(1).code(), 0);
  Upload(9, 30, kOneMiB, {std::string(kMiB, 'z')});  // there is room again
}

TEST_F(SmallStagingTest, WhatItHasIsReportedToEachSchedulerThatTakesItUp) {
  Probe();
  usage_.clear();  // also the first report, which comes before any scheduler listens
  OpenDevices();
  Probe();
  ASSERT_TRUE(usage_.contains(0)) << "the worker reported nothing of itself";
  EXPECT_EQ(usage_[0].data().staged_bytes_max(), 4 * kMiB);
}

TEST_F(SmallStagingTest, TM2_RefusedUploadsLeaveNothingBehind) {
  OpenStream();
  for (uint64_t i = 1; i <= 10'000; ++i) {
    SendChunk(First(i, i % 3 == 0 ? 64 * kMiB : 100));  // a third is too large for the worker
    wire::Bulk dropped;
    dropped.mutable_name()->set_session(kSession.number());
    dropped.mutable_name()->set_upload(i);
    dropped.mutable_dropped();
    SendChunk(std::move(dropped));
  }
  Upload(10'001, 9, kOneMiB, {std::string(kMiB, 'z')});
  const wire::Usage usage = Probe();
  EXPECT_EQ(usage.data().staged_bytes(), 0u);
  EXPECT_EQ(usage.data().staged_uploads(), 0u);
  EXPECT_EQ(usage.nodes(), 0u);
}

TEST_F(SmallStagingTest, BytesOfTheWrongSizeAreFreedBeforeTheirNodeIsReleased) {
  OpenStream();
  UploadNode(1, 1, kOneMiB, 1);
  SendShard(1, 0, std::string(1000, 'x'));
  Upload(9, 9, kOneMiB, {std::string(kMiB, 'z')});  // the same stream: the others have arrived
  const wire::Usage usage = Probe();
  EXPECT_EQ(usage.nodes(), 1u);
  EXPECT_EQ(usage.data().staged_bytes(), 0u);
}

TEST_F(SmallStagingTest, TM2_FetchesBeyondTheMemoryWaitForTheirTurn) {
  OpenStream();
  Upload(1, 10, kOneMiB, {std::string(kMiB, 'x')});
  std::vector<uint64_t> ordinals;
  for (uint64_t i = 0; i < 64; ++i) {
    FetchNode(2 + i, 10, kOneMiB, 1);
    ordinals.push_back(2 + i);
  }
  Release(ordinals);
  for (uint64_t ordinal : ordinals) {
    EXPECT_EQ(ReceiveFetch(ordinal, 1).bytes[0], std::string(kMiB, 'x'));
    EXPECT_EQ(WaitDone(ordinal).code(), 0);
    EXPECT_LE(Probe().data().staged_bytes(), 4 * kMiB);
  }
}

// A client on the same host, like the front door.
class UploadPlaceTest : public WorkerSimTest {
 protected:
  void OpenNear() {
    OpenStream();
    ASSERT_TRUE(data_reply_.has_descriptors());
    auto socket = transport::ConnectDescriptors(data_reply_.descriptors().name(),
                                                data_reply_.descriptors().secret());
    ASSERT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
  }
  // The block to write into; null: none was given.
  std::shared_ptr<std::byte> AskForPlace(uint64_t upload, size_t bytes) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_upload(upload);
    frame.mutable_bulk()->mutable_place_request()->set_size(bytes);
    EXPECT_TRUE(data_->Send(std::move(frame)).ok());
    wire::Bulk answer;
    EXPECT_TRUE(data_inbox_.Until([&](wire::Frame& f) {
      if (f.bulk().has_place_answer()) answer = f.bulk();
      return f.bulk().has_place_answer();
    }));
    EXPECT_EQ(answer.name().upload(), upload);
    while (auto received = transport::ReceiveDescriptor(socket_))
      EXPECT_TRUE(segments_.Add(*received).ok());
    const wire::SharedBlock& place = answer.place_answer().place();
    if (!answer.place_answer().has_place()) return nullptr;
    return segments_.Find(place.segment(), place.offset(), bytes);
  }
  void SayPlaced(uint64_t upload) {
    wire::Bulk chunk;
    chunk.mutable_name()->set_session(kSession.number());
    chunk.mutable_name()->set_upload(upload);
    chunk.mutable_placed();
    SendChunk(std::move(chunk));
  }
  std::string Contents(uint64_t ordinal, uint64_t storage) {
    FetchNode(ordinal, storage, kLarge, 1);
    Release({ordinal});
    wire::Bulk lent = ReceivePlace();
    EXPECT_EQ(lent.name().fetch(), ordinal);
    std::string bytes = Read(lent);
    Say(lent, Word::kReceived);
    return bytes;
  }

  // The announcement of a fetched shard that lies in shared memory.
  wire::Bulk ReceivePlace() {
    wire::Bulk lent;
    EXPECT_TRUE(data_inbox_.Until([&](wire::Frame& f) {
      if (f.bulk().has_lent()) lent = f.bulk();
      return lent.has_lent();
    }));
    while (auto received = transport::ReceiveDescriptor(socket_))
      EXPECT_TRUE(segments_.Add(*received).ok());
    return lent;
  }
  std::string Read(const wire::Bulk& lent) {
    const wire::SharedBlock& place = lent.lent();
    auto bytes = segments_.Find(place.segment(), place.offset(), place.size());
    EXPECT_NE(bytes, nullptr);
    if (bytes == nullptr) return {};
    return {reinterpret_cast<const char*>(bytes.get()), place.size()};
  }
  enum class Word { kReceived, kSendIt };
  void Say(const wire::Bulk& lent, Word word) {
    wire::Frame frame;
    *frame.mutable_bulk()->mutable_name() = lent.name();
    if (word == Word::kReceived) {
      frame.mutable_bulk()->mutable_received();
    } else {
      frame.mutable_bulk()->mutable_resend();
    }
    ASSERT_TRUE(data_->Send(std::move(frame)).ok());
  }
  void UploadLarge(uint64_t ordinal, uint64_t storage, char fill) {
    Upload(ordinal, storage, kLarge, {std::string(kBytes, fill)});
  }

  static constexpr size_t kBytes = 80'000;
  const Tensor kLarge{{kBytes / 4}, kBytes};
  FileDescriptor socket_;
  transport::MappedSegments segments_;
};

TEST_F(UploadPlaceTest, AShardIsWrittenIntoItsPlace) {
  OpenNear();
  for (uint64_t i = 1; i <= 3; ++i) {
    UploadNode(10 * i, i, kLarge, 1);
    Release({10 * i});
    auto place = AskForPlace(10 * i, kBytes);
    ASSERT_NE(place, nullptr);
    std::memset(place.get(), static_cast<int>(i), kBytes);
    SayPlaced(10 * i);
    EXPECT_EQ(WaitDone(10 * i).code(), 0);
    EXPECT_EQ(Contents(10 * i + 1, i), std::string(kBytes, static_cast<char>(i)));
  }
  EXPECT_EQ(Probe().data().from_clients(), 3 * kBytes);
  Free({1, 2, 3});
  EXPECT_EQ(Probe().storages(), 0u);
}

TEST_F(UploadPlaceTest, WhereThereIsNoPlaceTheShardComesInChunks_TM2) {
  OpenNear();
  UploadNode(1, 1, kLarge, 1);
  Release({1});
  EXPECT_EQ(AskForPlace(1, size_t{1} << 50), nullptr);
  SendShard(1, 0, std::string(kBytes, 'a'));
  EXPECT_EQ(WaitDone(1).code(), 0);
  EXPECT_EQ(Contents(2, 1), std::string(kBytes, 'a'));
}

TEST_F(UploadPlaceTest, AClientMaySendWhatItHasAPlaceFor) {
  OpenNear();
  UploadNode(1, 1, kLarge, 1);
  Release({1});
  auto place = AskForPlace(1, kBytes);
  ASSERT_NE(place, nullptr);
  std::memset(place.get(), 'x', kBytes);  // then the client sends the shard instead
  SendShard(1, 0, std::string(kBytes, 'b'));
  EXPECT_EQ(WaitDone(1).code(), 0);
  EXPECT_EQ(Contents(2, 1), std::string(kBytes, 'b'));
}

TEST_F(UploadPlaceTest, AShardOfAnotherSizeThanItsPlaceIsRefused) {
  OpenNear();
  UploadNode(1, 1, kLarge, 1);
  Release({1});
  ASSERT_NE(AskForPlace(1, kBytes - 4), nullptr);
  SayPlaced(1);
  EXPECT_NE(WaitDone(1).code(), 0);
}

TEST_F(UploadPlaceTest, AFetchedShardIsReadWhereItLies) {
  OpenNear();
  UploadLarge(1, 1, 'a');
  UploadLarge(2, 2, 'b');
  FetchNode(3, 1, kLarge, 1);
  FetchNode(4, 2, kLarge, 1);
  Release({3, 4});
  const wire::Bulk first = ReceivePlace(), second = ReceivePlace();
  EXPECT_EQ(WaitDone(3).code(), 0) << "a node does not wait for its reader";
  EXPECT_NE(first.lent().offset(), second.lent().offset());
  EXPECT_EQ(Read(first), std::string(kBytes, 'a'));
  EXPECT_EQ(Read(second), std::string(kBytes, 'b'));
  Free({1, 2});
  EXPECT_EQ(Read(first), std::string(kBytes, 'a')) << "it outlives its array";
  Say(first, Word::kReceived);
  UploadLarge(5, 5, 'c');
  FetchNode(6, 5, kLarge, 1);
  Release({6});
  const wire::Bulk third = ReceivePlace();
  EXPECT_EQ(third.lent().offset(), first.lent().offset()) << "memory is reused";
  EXPECT_EQ(Read(second), std::string(kBytes, 'b'));
  EXPECT_EQ(Probe().data().to_clients_shared(), 3 * kBytes);
  EXPECT_EQ(Probe().data().to_clients(), 3 * kBytes);
}

TEST_F(UploadPlaceTest, AFetchedShardThatCannotBeMappedIsSent) {
  OpenNear();
  UploadLarge(1, 1, 'a');
  FetchNode(2, 1, kLarge, 1);
  Release({2});
  Say(ReceivePlace(), Word::kSendIt);
  EXPECT_EQ(ReceiveFetch(2, 1).bytes[0], std::string(kBytes, 'a'));
  EXPECT_EQ(Probe().data().to_clients_shared(), 0u);
  EXPECT_EQ(Probe().data().to_clients(), kBytes);
}

TEST_F(UploadPlaceTest, SmallShardsAndThoseForOtherHostsAreSent) {
  OpenStream();  // without a descriptor connection
  UploadLarge(1, 1, 'a');
  FetchNode(2, 1, kLarge, 1);
  Release({2});
  EXPECT_EQ(ReceiveFetch(2, 1).bytes[0], std::string(kBytes, 'a'));
}

// OB-3: a client that has not acknowledged a block may still read it, so the block is never reused.
TEST_F(UploadPlaceTest, OB3_WhatIsNotGivenBackIsNotUsedAgain) {
  OpenNear();
  UploadLarge(1, 1, 'a');
  FetchNode(2, 1, kLarge, 1);
  Release({2});
  const wire::Bulk lent = ReceivePlace();
  data_->Close(absl::CancelledError("gone"));
  const transport::MappedSegments mine = std::exchange(segments_, {});
  OpenNear();
  FetchNode(3, 1, kLarge, 1);
  Release({3});
  const wire::Bulk other = ReceivePlace();
  EXPECT_NE(other.lent().segment(), lent.lent().segment());
  EXPECT_EQ(Read(other), std::string(kBytes, 'a'));
}

TEST(FetchedShard, TM2_ASessionHasItsShareOfSharedMemory) {
  auto pool = transport::SharedPool::Make({.bytes_max = size_t{64} << 20, .writable = true});
  FetchedShard::Source source{.pool = pool, .share = std::make_shared<FetchShare>(250'000)};
  auto first = FetchedShard::Make(source, {}, 100'000, 1000);
  auto second = FetchedShard::Make(source, {}, 100'000, 1000);
  auto third = FetchedShard::Make(source, {}, 100'000, 1000);
  EXPECT_TRUE(first->block() != nullptr && second->block() != nullptr);
  EXPECT_EQ(third->block(), nullptr) << "it goes on the stream";
  EXPECT_EQ(third->bytes().size(), 100'000u);
  EXPECT_EQ(FetchedShard::Make(source, {}, 999, 1000)->block(), nullptr);
  first.reset();
  EXPECT_NE(FetchedShard::Make(source, {}, 100'000, 1000)->block(), nullptr);
  EXPECT_EQ(source.share->used(), 100'000u);
}

TEST_F(UploadPlaceTest, WhoSpeaksOfAPlaceThatHeHasNotIsSentAway) {
  OpenNear();
  SayPlaced(1);
  EXPECT_TRUE(data_inbox_.WaitClosed());
}

// --- Isolated sessions ---

class IsolatedWorkerTest : public WorkerSimTest {
 protected:
  void SetUp() override {
    isolated_ = true;
    WorkerSimTest::SetUp();
  }
  void Admit(SessionId session) {
    wire::IslandItem item;
    item.mutable_admit_session()->set_session(session.number());
    Item(item);
  }
  // The session whose stream is greeted next; 0: one is refused.
  uint64_t NextGreeted() {
    uint64_t session = 0;
    EXPECT_TRUE(data_inbox_.Until([&](wire::Frame& frame) {
      session = frame.hello_reply().session();
      return frame.has_hello_reply();
    }));
    return session;
  }
};

TEST_F(IsolatedWorkerTest, AStreamWaitsUntilItsSessionIsAdmitted) {
  const SessionId other(kSession.number() + 1);
  AskForStream(kSession);
  const auto first = data_;
  AskForStream(other);
  Admit(other);
  EXPECT_EQ(NextGreeted(), other.number()) << "the first one came before";
  Admit(kSession);
  EXPECT_EQ(NextGreeted(), kSession.number());
}

TEST_F(IsolatedWorkerTest, AStreamThatSendsMoreThanAHelloIsNotKept) {
  AskForStream(kSession);
  SendChunk({});
  EXPECT_EQ(NextGreeted(), 0u);
  EXPECT_TRUE(data_inbox_.WaitClosed());
}

TEST_F(IsolatedWorkerTest, AnEndedSessionIsNotAdmittedAgain) {
  Admit(kSession);
  OpenStream();
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession.number());
  Item(end);
  EXPECT_TRUE(data_inbox_.WaitClosed());
  Admit(kSession);
  AskForStream(kSession);
  EXPECT_EQ(NextGreeted(), 0u);
}

}  // namespace
}  // namespace gangway::worker
