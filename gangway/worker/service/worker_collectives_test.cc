// Tests a real worker on simulated devices as a member of gangs whose other member is the test: how the two exchange
// the memory of their collectives, and what the worker tells of gangs that fail.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gangway/base/file_descriptor.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/transport/shm/descriptor_mail.h"
#include "gangway/worker/service/launch/late_ends.h"
#include "gangway/worker/service/lowered_permute_test_util.h"
#include "gangway/worker/service/transfer/peer_streams.h"
#include "gangway/worker/service/worker_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::HasSubstr;

const Tensor kFour{{4}, 16};
constexpr uint64_t kPeer = 77;         // its incarnation
constexpr uint32_t kPeerDevice = 900;  // its only device
constexpr uint64_t kProgram = 1, kInput = 10;

// Programs have a position on each device of the worker, and one on the peer's.
class WorkerCollectivesTest : public WorkerHarness {
 protected:
  explicit WorkerCollectivesTest(int devices = 1) : devices_(devices) {}

  void SetUp() override {
    auto sim = device::OpenSim({.device_count = devices_});
    sim_ = sim.get();
    auto shared = std::make_shared<std::unique_ptr<device::Backend>>(std::move(sim));
    WorkerOptions options;
    options.host = "here";
    Start(
        devices_,
        [shared]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
          return std::move(*shared);
        },
        options);
    auto box = transport::DescriptorMailbox::Open();
    ASSERT_TRUE(box.ok()) << box.status();
    box_ = *std::move(box);
    arena_ = *collective::Arena::Create(1);
  }

  // For the worker's devices.
  std::string Serialized(const std::string& cost) const {
    auto compiler = device::OpenSim({.device_count = devices_});
    std::vector<int> devices(devices_);
    std::iota(devices.begin(), devices.end(), 0);
    const std::string unary = absl::StrCat("sim 1\nname step\npartitions ", devices_, "\n", cost,
                                           "\ninput 11 4\noutput 11 4\n");
    auto executable = compiler->Compile({unary, "sim"}, "", devices);
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *(*executable)->Serialize();
  }
  std::string Lowered(const std::string& cost = "cost_us 100") const {
    return LoweredPermute(Serialized(cost), static_cast<uint32_t>(devices_ + 1));
  }

  enum class Peers { kNamed, kNotNamed, kElsewhere };
  void LoadProgram(uint32_t peer_index = 1, Peers peers = Peers::kNamed,
                   const std::string& cost = "cost_us 100") {
    SendProgram(peer_index, peers, cost);
    ASSERT_EQ(WaitLoaded(kProgram).code(), 0);
  }

  void SendProgram(uint32_t peer_index = 1, Peers peers = Peers::kNamed,
                   const std::string& cost = "cost_us 100") {
    wire::IslandItem item;
    wire::Load& load = *item.mutable_load();
    load.set_executable(kProgram);
    load.set_name("step");
    load.set_serialized(Lowered(cost));
    load.set_has_collectives(true);
    load.mutable_positions()->set_replicas(1);
    load.mutable_positions()->set_partitions(devices_ + 1);
    for (int i = 0; i < devices_; ++i) load.add_devices(100 + i);
    load.add_devices(kPeerDevice);
    wire::TensorSpec& result = *load.add_results();
    result.set_element_type(11);
    result.add_shard_dims(4);
    result.set_shard_bytes(16);
    wire::IslandItem named;
    wire::Worker& self = *named.mutable_peers()->add_workers();
    self.set_incarnation(hello_.worker().incarnation());
    for (int i = 0; i < devices_; ++i) self.add_devices(100 + i);
    self.set_host("here");
    wire::Worker& peer = *named.mutable_peers()->add_workers();
    peer.set_index(peer_index);
    peer.set_incarnation(kPeer);
    peer.add_devices(kPeerDevice);
    peer.set_host("here");
    peer.mutable_collectives()->set_name(box_->name());
    peer.mutable_collectives()->set_secret(box_->secret());
    if (peers == Peers::kElsewhere) {
      peer.set_host("elsewhere");
      peer.clear_collectives();
      peer.set_data_address("peer");
    }
    if (peers == Peers::kNotNamed) named.mutable_peers()->mutable_workers()->RemoveLast();
    Item(named);
    Item(item);
  }

  // The input of every launch that is not given another one.
  void MakeInput() {
    OpenStream();
    wire::IslandItem item = NodeItem(1);
    wire::Upload& upload = *item.mutable_node()->mutable_upload();
    upload.set_storage(kInput);
    upload.set_upload(1);
    *upload.mutable_spec() = Spec(kFour, devices_);
    upload.mutable_spec()->add_devices(kPeerDevice);
    Item(item);
    Release({1});
    for (int i = 0; i < devices_; ++i) SendShard(1, i, Floats({1, 2, 3, 4}));
    ASSERT_EQ(WaitDone(1).code(), 0);
  }

  void SendArena(const FileDescriptor& descriptor) {
    const wire::DescriptorSocket& socket = hello_.worker().collectives();
    ASSERT_TRUE(box_->Send(socket.name(), socket.secret(), kPeer, {{descriptor.get()}}).ok());
  }
  void SendArena() { SendArena(FileDescriptor(dup(arena_->descriptor()))); }

  // The worker's arena, which it has sent to the peer; null: none has come.
  std::shared_ptr<collective::Arena> ReceiveArena() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      auto mail = box_->Receive();
      if (mail && mail->sender == hello_.worker().incarnation())
        return *collective::Arena::Map(std::move(mail->descriptors[0]), 1);
      if (!mail) std::this_thread::yield();
    }
    return nullptr;
  }

  void ReleaseAt(uint64_t ordinal, uint64_t position) {
    wire::IslandItem item;
    item.mutable_release()->add_ordinals(ordinal);
    item.mutable_release()->add_order_positions(position);
    Item(item);
  }

  const int devices_;
  device::SimBackend* sim_ = nullptr;
  std::unique_ptr<transport::DescriptorMailbox> box_;  // the peer's
  std::shared_ptr<collective::Arena> arena_;           // the peer's
};

// Others may write over what they have sent for a gang once its members have left it.
TEST_F(WorkerCollectivesTest, AGangThatFailsBeforeItRunsIsLeft) {
  LoadProgram();
  MakeInput();
  SendArena();
  const auto theirs = ReceiveArena();
  ASSERT_NE(theirs, nullptr);
  sim_->Inject({.kind = device::SimFault::Kind::kFail,
                .device = 0,
                .error = absl::InternalError("a bit flipped")});
  LaunchNode(2, kProgram, {kInput}, {11}, 2);
  ReleaseAt(2, 5);
  EXPECT_THAT(WaitDone(2).message(), HasSubstr("a bit flipped"));
  EXPECT_EQ(theirs->region(0).left.load(), 5u);
  LaunchNode(3, kProgram, {11}, {12}, 2);  // its input has failed before it is released
  ReleaseAt(3, 8);
  EXPECT_THAT(WaitDone(3).message(), HasSubstr("a bit flipped"));
  EXPECT_EQ(theirs->region(0).left.load(), 8u);
}

TEST_F(WorkerCollectivesTest, AGangWithADeviceWhoseWorkerWasNotNamedIsRefusedByName) {
  LoadProgram(1, Peers::kNotNamed);
  MakeInput();
  LaunchNode(2, kProgram, {kInput}, {11}, 2);
  ReleaseAt(2, 5);
  EXPECT_THAT(WaitDone(2).message(), HasSubstr("the worker of device 900 was not named"));
}

TEST_F(WorkerCollectivesTest, AFullMailboxGetsTheArenaOnceItHasRoom) {
  absl::Status sent;
  while (sent.ok())
    sent = box_->Send(box_->name(), box_->secret(), kPeer, {{arena_->descriptor()}});
  ASSERT_TRUE(absl::IsResourceExhausted(sent)) << sent;
  LoadProgram();  // by then, the worker has tried
  EXPECT_NE(ReceiveArena(), nullptr);
}

// A short lack of memory must not bar the worker from collectives until it ends.
TEST_F(WorkerCollectivesTest, ALoadWithoutMemoryForCollectivesFailsWithSizesAndTheNextTriesAgain) {
  struct rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = {4096, old.rlim_max};  // of files in memory, too
  setrlimit(RLIMIT_FSIZE, &small);
  SendProgram();
  const wire::Failure failure = WaitLoaded(kProgram);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(failure.message(), HasSubstr("collectives of 1 devices: they need "));
  EXPECT_THAT(failure.message(),
              HasSubstr(absl::StrCat(collective::Arena::MemoryFor(1, 0), " bytes, ")));
  EXPECT_EQ(failure.worker(), "island0/worker0");
  MakeInput();
  LaunchNode(2, kProgram, {kInput}, {11}, 2);  // one that was sent before the scheduler knew
  ReleaseAt(2, 5);
  EXPECT_THAT(WaitDone(2).message(), HasSubstr("no memory for the collectives"));
  loaded_.clear();
  LoadProgram();
  SendArena();
  EXPECT_NE(ReceiveArena(), nullptr);
  LaunchNode(3, kProgram, {kInput}, {12}, 2);
  ReleaseAt(3, 8);
  EXPECT_EQ(WaitDone(3).code(), 0);
}

TEST_F(WorkerCollectivesTest, AnIslandLargerThanRegionsCanNameIsRefusedByName) {
  LoadProgram(collective::kWorkersMax);
  MakeInput();
  LaunchNode(2, kProgram, {kInput}, {11}, 2);
  ReleaseAt(2, 5);
  const wire::Failure failure = WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(failure.message(), HasSubstr("more than 1024 workers"));
}

// A broken or hostile peer: what it sends is not memory that a worker could read without a signal.
TEST_F(WorkerCollectivesTest, MemoryThatCouldShrinkIsRefused) {
  LoadProgram();
  MakeInput();
  FileDescriptor open(memfd_create("not-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), static_cast<off_t>(arena_->bytes())), 0);
  SendArena(open);
  LaunchNode(2, kProgram, {kInput}, {11}, 2);
  ReleaseAt(2, 5);
  const wire::Failure failure = WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(failure.message(), HasSubstr("not of the collectives' memory"));
}

TEST(ThreadPoolTest, HasAThreadForEachDeviceAndEachCore) {
  EXPECT_TRUE(CheckThreadPool(10, 8, 2).ok());
  const absl::Status refused = CheckThreadPool(9, 8, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at least 10 threads"));
}

class WorkerOfTwoTest : public WorkerCollectivesTest {
 protected:
  WorkerOfTwoTest() : WorkerCollectivesTest(2) {}
};

// Members on other workers wait for the failed one, whose neighbour may compute for long.
TEST_F(WorkerOfTwoTest, AMemberThatFailsIsToldBeforeItsGangEnds) {
  LoadProgram(1, Peers::kNamed, "cost_us 2000000");
  MakeInput();
  SendArena();
  sim_->Inject({.kind = device::SimFault::Kind::kFail,
                .device = 0,
                .error = absl::InternalError("a bit flipped")});
  LaunchNode(2, kProgram, {kInput}, {11}, 3);
  ReleaseAt(2, 5);
  EXPECT_THAT(WaitDone(2).message(), HasSubstr("a bit flipped"));
  EXPECT_THAT(failing_[2].message(), HasSubstr("a bit flipped"));
}

// What is said of it waits for the ends of its inputs, and those are held while the devices have work behind them.
TEST_F(WorkerOfTwoTest, AMemberThatFailsIsToldAtOnceThoughTheEndOfItsInputIsHeld) {
  constexpr uint64_t kPlain = 2;
  LoadProgram();
  LoadExecutable(kPlain, "plain", Serialized("cost_us 100"), 2, {kFour});
  MakeInput();
  SendArena();
  Clock::duration fastest = Clock::duration::max();
  for (uint64_t first = 9; first < 16 * 10 && fastest >= LateEnds::kHoldMax; first += 16) {
    const uint64_t gang = first + 1, last = first + 5;
    sim_->Inject({.kind = device::SimFault::Kind::kFail,
                  .device = 0,
                  .nth = 2,
                  .error = absl::InternalError("a bit flipped")});
    sim_->Inject({.kind = device::SimFault::Kind::kHang, .device = 1, .nth = 2});
    LaunchNode(first, kPlain, {kInput}, {100 + first}, 2);
    LaunchNode(gang, kProgram, {100 + first}, {100 + gang}, 3);
    for (uint64_t behind = gang + 1; behind <= last; ++behind)
      LaunchNode(behind, kPlain, {kInput}, {100 + behind}, 2);
    wire::IslandItem item;
    for (uint64_t ordinal = first; ordinal <= last; ++ordinal) {
      item.mutable_release()->add_ordinals(ordinal);
      item.mutable_release()->add_order_positions(ordinal);
    }
    const Clock::time_point released = Clock::now();
    Item(std::move(item));
    WatchReports([&] { return failing_.contains(gang) || dones_.contains(gang); });
    EXPECT_TRUE(dones_.contains(first));
    // A slow host takes longer. If device 1 is so late that it never runs its part, the gang is done: another try.
    if (!dones_.contains(gang)) fastest = std::min(fastest, Clock::now() - released);
    WatchReports([&] {  // at each frame: what device 1 runs next may hang instead, whenever that is
      sim_->ReleaseHung();
      return dones_.contains(gang) && dones_.contains(last);
    });
    for (uint64_t ordinal = gang; ordinal <= last; ++ordinal) WaitDone(ordinal);
  }
  EXPECT_LT(fastest, LateEnds::kHoldMax);
}

// Its messages may be lost, and no later event would end the waits for them.
TEST_F(WorkerCollectivesTest, AGangThatLostItsWayAsItRanFailsAlthoughItsProgramEndedWell) {
  EventLoop loop("peer");
  Inbox said, heard;
  std::shared_ptr<transport::Link> outgoing;
  auto listener = *hub_->Listen("peer", [&](std::shared_ptr<transport::Link> link) {
    wire::Frame welcome;
    welcome.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
    EXPECT_TRUE(link->Send(std::move(welcome)).ok());
    outgoing = std::move(link);
    return said.Events(&loop);
  });
  LoadProgram(1, Peers::kElsewhere, "cost_us 2000000");
  MakeInput();
  auto incoming = *hub_->Connect("worker-data", heard.Events(&loop), kPatience);
  wire::Frame frame;
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_role(wire::ROLE_MEMBER);
  hello.set_token(transport::DataToken(kDataKey, kPeerSession));
  hello.mutable_worker()->set_index(1);
  hello.mutable_worker()->set_incarnation(kPeer);
  ASSERT_TRUE(incoming->Send(std::move(frame)).ok());
  LaunchNode(2, kProgram, {kInput}, {11}, 2);
  ReleaseAt(2, 5);
  ASSERT_TRUE(said.Until([](wire::Frame& beat) { return beat.has_heartbeat(); })) << "it runs";
  incoming->Close(absl::UnavailableError("cut"));
  const wire::Failure failure = WaitDone(2);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(failure.message(), HasSubstr("have lost their way"));
  listener.reset();
  loop.Stop();
}

TEST_F(WorkerCollectivesTest, APlanForOtherDevicesIsRefused) {
  wire::IslandItem item;
  wire::Load& load = *item.mutable_load();
  load.set_executable(kProgram);
  load.set_serialized(Lowered());
  load.set_has_collectives(true);
  load.mutable_positions()->set_replicas(1);
  load.mutable_positions()->set_partitions(3);
  for (uint32_t device : {100u, kPeerDevice, kPeerDevice + 1}) load.add_devices(device);
  Item(item);
  EXPECT_THAT(WaitLoaded(kProgram).message(), HasSubstr("of 2 positions, for 3 devices"));
}

}  // namespace
}  // namespace gangway::worker
