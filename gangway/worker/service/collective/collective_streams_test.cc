// Two workers that hear each other's devices over streams, and one that is not a worker: ways open from both sides,
// carry what devices publish, fail launches by name when they break or are silent, and open again.
#include "gangway/worker/service/collective/collective_streams.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/collective/execution/member.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

using collective::Launch;
using collective::LocalDevice;
using collective::Member;
using xla::Collective;

constexpr std::chrono::seconds kPatience{20};

template <typename Done>
bool Until(Done done) {
  const auto deadline = Clock::now() + kPatience;
  while (!done()) {
    if (Clock::now() > deadline) return false;
    YieldCore();
  }
  return true;
}

std::shared_ptr<const collective::Plan> AllReduce(uint32_t members) {
  xla::CollectiveTable table;
  table.set_replica_count(1);
  table.set_partition_count(members);
  auto& group = *table.add_groups()->add_groups();
  for (uint32_t i = 0; i < members; ++i) group.add_positions(i);
  Collective& collective = *table.add_collectives();
  collective.set_kind(Collective::ALL_REDUCE);
  collective.set_reduction(Collective::SUM);
  collective.set_name("it");
  Collective::Operand& operand = *collective.add_operands();
  operand.set_element_type(11);  // f32
  operand.set_outer(1);
  operand.set_piece_bytes(sizeof(float));
  return *collective::Plan::Make(table);
}

// Connections carry frames at once, but are said to be open only after Open.
class LateTransport final : public transport::Transport {
 public:
  explicit LateTransport(transport::Transport* base) : base_(base) {}

  absl::StatusOr<std::unique_ptr<transport::Listener>> Listen(
      const std::string& address, transport::Accept accept,
      transport::LinkOptions options) override {
    return base_->Listen(address, std::move(accept), options);
  }
  absl::StatusOr<std::shared_ptr<transport::Link>> Connect(
      const std::string& address, transport::LinkEvents events, std::chrono::milliseconds limit,
      transport::LinkOptions options) override {
    events.on_frame = [this, before = std::move(events.on_frame)](wire::Frame frame) {
      before(std::move(frame));
      ++frames_;
    };
    auto link = base_->Connect(address, std::move(events), limit, options);
    EXPECT_TRUE(Until([this] { return is_open_.load(); }));
    return link;
  }

  int frames() const { return frames_; }
  void Open() { is_open_ = true; }

 private:
  transport::Transport* const base_;
  std::atomic<bool> is_open_ = false;
  std::atomic<int> frames_ = 0;
};

// A worker of one device.
class Side {
 public:
  Side(transport::Transport* hub, uint32_t index, std::chrono::milliseconds open_max)
      : index_(index), loop_(absl::StrCat("side", index)), arena_(*collective::Arena::Create(1)) {
    device_ = std::make_shared<LocalDevice>(arena_, index, 0, couriers_);
    streams_ = std::make_unique<CollectiveStreams>(
        CollectiveStreams::Options{.identity = {.name = absl::StrCat("island0/worker", index),
                                                .incarnation = Incarnation(100 + index),
                                                .device_count = 1},
                                   .index = index,
                                   .loop = &loop_,
                                   .transport = hub,
                                   .couriers = couriers_,
                                   .open_max = open_max,
                                   .silence_max = std::chrono::milliseconds(1500),
                                   .on_refused = [](uint64_t) {},
                                   .on_broken = [this] { ++broken_; }});
    listener_ = *hub->Listen(Address(index), [this](std::shared_ptr<transport::Link> link) {
      return Accept(std::move(link));
    });
  }
  ~Side() {
    Do([this] {
      streams_->Close();
      for (auto& [id, link] : links_) link->Close(absl::CancelledError("over"));
      links_.clear();
    });
    listener_.reset();
    loop_.Stop();
    streams_.reset();
  }

  static std::string Address(uint32_t index) { return absl::StrCat("worker", index); }
  static wire::Worker Describe(uint32_t index) {
    wire::Worker worker;
    worker.set_index(index);
    worker.set_incarnation(100 + index);
    worker.add_devices(index);
    worker.set_data_address(Address(index));
    return worker;
  }

  void Do(std::function<void()> task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  void Open(uint32_t other) {
    Do([&] { streams_->Open(Describe(other), arena_); });
  }
  // Of streams that others have opened here.
  void CutIncoming() {
    Do([this] {
      for (auto& [id, link] : links_) {
        link->Close(absl::UnavailableError("cut"));
        streams_->OnPeerClosed(id);
      }
      links_.clear();
    });
  }
  // On the streams that others have opened here.
  void SayToAll(const wire::Frame& frame) {
    Do([&] {
      for (auto& [id, link] : links_) EXPECT_TRUE(link->Send(frame).ok());
    });
  }
  absl::StatusOr<std::shared_ptr<const collective::Peer>> Peer(uint32_t other) {
    std::shared_ptr<PendingPeer> pending;
    Do([&] { pending = streams_->PendingPeerOf(other); });
    return pending->Wait(Clock::now() + kPatience);
  }
  void Ask(uint32_t other) {
    Do([&] { streams_->PendingPeerOf(other); });
  }
  int broken() const { return broken_; }
  int accepted() const { return accepted_; }

  // A gang of this side's device and the one of `other`, at this position in the order.
  absl::StatusOr<std::shared_ptr<Launch>> Begin(uint32_t other, uint64_t order) {
    auto peer = Peer(other);
    if (!peer.ok()) return peer.status();
    auto self = std::make_shared<collective::Peer>("self", index_, arena_);
    std::vector<collective::PeerDevice> devices = {{self, 0}, {*peer, 0}};
    if (index_ > other) std::swap(devices[0], devices[1]);
    device_->Enter(order);
    return Launch::Begin(AllReduce(2),
                         std::make_shared<const collective::PeerDevices>(std::move(devices)),
                         {.order = order, .ordinal = order}, std::chrono::seconds(30));
  }
  void EndWithout(uint64_t order, LocalDevice::Ending ending) {
    device_->Enter(order);
    device_->Leave(order, ending);
  }
  // The sum, or why not.
  absl::StatusOr<float> Run(const std::shared_ptr<Launch>& launch, float value, int rounds = 1) {
    absl::Status status;
    {
      Member member(launch, device_, (*launch->devices())[0].peer->index() == index_ ? 0 : 1);
      const std::span<const std::byte> operand = std::as_bytes(std::span(&value, 1));
      const std::span<std::byte> result = std::as_writable_bytes(std::span(&value, 1));
      for (int i = 0; i < rounds && status.ok(); ++i)
        status = member.Run(0, std::span(&operand, 1), std::span(&result, 1));
    }
    device_->Leave(launch->gang().order,
                   status.ok() ? LocalDevice::Ending::kComplete : LocalDevice::Ending::kEarly);
    if (!status.ok()) return status;
    return value;
  }

 private:
  transport::LinkEvents Accept(std::shared_ptr<transport::Link> link) {
    const uint64_t id = ++accepted_;
    loop_.Post([this, id, link = std::move(link)] { links_[id] = link; });
    return {.executor = &loop_,
            .on_frame =
                [this, id](wire::Frame frame) {
                  if (!links_.contains(id)) return;
                  if (!frame.has_hello()) return streams_->OnPeerFrame(id, std::move(frame));
                  streams_->AcceptPeer(id, links_[id], frame.hello());
                },
            .on_writable = [this, id] { streams_->OnPeerWritable(id); },
            .on_closed =
                [this, id](const absl::Status&) {
                  links_.erase(id);
                  streams_->OnPeerClosed(id);
                }};
  }

  const uint32_t index_;
  EventLoop loop_;
  std::shared_ptr<collective::Arena> arena_;
  std::shared_ptr<collective::Couriers> couriers_ = std::make_shared<collective::Couriers>();
  std::shared_ptr<LocalDevice> device_;
  std::unique_ptr<CollectiveStreams> streams_;
  std::unique_ptr<transport::Listener> listener_;
  std::map<uint64_t, std::shared_ptr<transport::Link>> links_;
  std::atomic<int> broken_ = 0;
  std::atomic<int> accepted_ = 0;
};

class CollectiveStreamsTest : public ::testing::Test {
 protected:
  // Both members of a gang, at once.
  std::vector<absl::StatusOr<float>> RunBoth(Side& a, Side& b, uint64_t order, int rounds = 1) {
    std::vector<absl::StatusOr<float>> sums(2, absl::UnknownError("not run"));
    auto first = a.Begin(1, order), second = b.Begin(0, order);
    if (!first.ok() || !second.ok()) return {first.status(), second.status()};
    Thread other("other", [&] { sums[1] = b.Run(*second, 2, rounds); });
    sums[0] = a.Run(*first, 1, rounds);
    other.Join();
    return sums;
  }
  void ExpectSum(Side& a, Side& b, uint64_t order, int rounds = 1) {
    for (const auto& sum : RunBoth(a, b, order, rounds)) {
      ASSERT_TRUE(sum.ok()) << sum.status();
      EXPECT_EQ(*sum, 3.0f * static_cast<float>(1 << (rounds - 1)));
    }
  }

  // To side 0, as worker 1 opens its own.
  std::shared_ptr<transport::Link> OpenStream(EventLoop* loop) {
    auto link = hub_->Connect(Side::Address(0), {.executor = loop}, kPatience);
    wire::Frame hello;
    hello.mutable_hello()->mutable_worker()->set_index(1);
    hello.mutable_hello()->mutable_worker()->set_incarnation(101);
    EXPECT_TRUE((*link)->Send(std::move(hello)).ok());
    return *link;
  }

  // What b says ends the launch that waits for it, in these words; the next launch has a new way.
  void ExpectBroken(const std::string& words, const std::function<void(Side& b)>& say) {
    Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience);
    a.Open(1);
    b.Open(0);
    ExpectSum(a, b, 1);
    auto waits = a.Begin(1, 2);
    ASSERT_TRUE(waits.ok());
    say(b);
    const auto ended = a.Run(*waits, 1);
    EXPECT_TRUE(absl::IsDataLoss(ended.status())) << ended.status();
    EXPECT_NE(ended.status().message().find(words), std::string::npos) << ended.status();
    ExpectSum(a, b, 3);
  }

  std::unique_ptr<transport::Transport> hub_ = transport::NewInprocTransport();
};

TEST_F(CollectiveStreamsTest, CarryCollectivesInBothDirections) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience);
  a.Open(1);
  a.Ask(1);
  EXPECT_TRUE(Until([&] { return b.accepted() > 0; }));  // before b knows of it
  b.Open(0);
  for (uint64_t order = 1; order < 20; ++order) ExpectSum(a, b, order);
  ExpectSum(a, b, 20, 20);
  EXPECT_EQ(a.broken() + b.broken(), 0);
}

// An island has more workers than one of them meets in its programs.
TEST_F(CollectiveStreamsTest, AreOpenedWhenOneOfTwoWorkersAsks) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience), c(hub_.get(), 2, kPatience);
  for (uint32_t other : {1u, 2u}) a.Open(other);
  for (uint32_t other : {0u, 2u}) b.Open(other);
  for (uint32_t other : {0u, 1u}) c.Open(other);
  ASSERT_TRUE(a.Peer(1).ok());
  EXPECT_EQ(a.accepted(), 1) << "b was not asked, but answers";
  EXPECT_EQ(b.accepted(), 1);
  EXPECT_EQ(c.accepted(), 0);
}

TEST_F(CollectiveStreamsTest, TellHowADeviceHasEnded) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience);
  a.Open(1);
  b.Open(0);
  ExpectSum(a, b, 1);
  b.EndWithout(2, LocalDevice::Ending::kEarly);
  b.EndWithout(3, LocalDevice::Ending::kUnread);
  auto waits = a.Begin(1, 3);
  ASSERT_TRUE(waits.ok());
  const auto ended = a.Run(*waits, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ended.status())) << ended.status();
  const collective::Region& region = (*(*waits)->devices())[1].region();
  EXPECT_EQ(region.left.load(), 3u);
  EXPECT_EQ(region.failed.load(), 2u);
}

TEST_F(CollectiveStreamsTest, FailTheLaunchesOfABrokenWayByNameAndOpenItAgain_ER1) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience);
  a.Open(1);
  b.Open(0);
  ExpectSum(a, b, 1);
  for (uint64_t order = 2; order < 8; order += 2) {
    auto waits = a.Begin(1, order);
    ASSERT_TRUE(waits.ok());
    const auto begun = Clock::now();
    absl::StatusOr<float> ended = absl::UnknownError("not ended");
    Thread member("member", [&] { ended = a.Run(*waits, 1); });
    (order % 4 == 2 ? a : b).CutIncoming();
    member.Join();
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(1));
    EXPECT_TRUE(absl::IsDataLoss(ended.status())) << ended.status();
    EXPECT_EQ(wire::ToFailure(ended.status()).worker(), "island0/worker1");
    EXPECT_TRUE(Until([&] { return a.broken() > 0 && b.broken() > 0; }));
    ExpectSum(a, b, order + 1, 5);
  }
}

// Answers a Hello, opens its own stream, and says nothing more.
TEST_F(CollectiveStreamsTest, NoticeASilentMember_TM1) {
  Side a(hub_.get(), 0, kPatience);
  EventLoop loop("silent");
  std::shared_ptr<transport::Link> told;
  auto listener = *hub_->Listen(Side::Address(1), [&](std::shared_ptr<transport::Link> link) {
    told = std::move(link);
    return transport::LinkEvents{.executor = &loop, .on_frame = [&](const wire::Frame& frame) {
                                   if (!frame.has_hello()) return;
                                   wire::Frame reply;
                                   reply.mutable_hello_reply();
                                   EXPECT_TRUE(told->Send(std::move(reply)).ok());
                                 }};
  });
  a.Open(1);
  const auto hears = OpenStream(&loop);
  auto waits = a.Begin(1, 1);
  ASSERT_TRUE(waits.ok()) << waits.status();
  const auto ended = a.Run(*waits, 1);
  EXPECT_TRUE(absl::IsDataLoss(ended.status())) << ended.status();
  EXPECT_NE(ended.status().message().find("silent for 1500 ms"), std::string::npos)
      << ended.status();
  listener.reset();
  loop.Stop();
}

// The limit of silence begins anew with each launch, also while a launch with another member is watched all the time.
TEST_F(CollectiveStreamsTest, TakeAMemberThatHadNothingToSayForLive) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience), c(hub_.get(), 2, kPatience);
  a.Open(1);
  a.Open(2);
  b.Open(0);
  c.Open(0);
  auto first = a.Begin(1, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  a.Do([] {});  // the watch has begun
  auto with_c = a.Begin(2, 2);
  ASSERT_TRUE(with_c.ok()) << with_c.status();
  (*first)->Abort(absl::CancelledError("over"));
  *first = nullptr;
  const auto idle_since = Clock::now();
  EXPECT_TRUE(Until([&] { return Clock::now() - idle_since > std::chrono::milliseconds(2500); }));
  auto with_b = a.Begin(1, 3);
  ASSERT_TRUE(with_b.ok()) << with_b.status();
  const auto begun = Clock::now();  // beyond the next two looks, which come every second
  EXPECT_TRUE(Until(
      [&] { return a.broken() > 0 || Clock::now() - begun > std::chrono::milliseconds(2200); }));
  EXPECT_EQ(a.broken(), 0);
  for (auto* launch : {&with_c, &with_b}) (**launch)->Abort(absl::CancelledError("over"));
}

// What it would be sent, and what it says, belongs to no way of the worker that has its place now.
TEST_F(CollectiveStreamsTest, LeaveAWayAloneWhenAnEarlierIncarnationComes) {
  Side a(hub_.get(), 0, kPatience), b(hub_.get(), 1, kPatience);
  a.Open(1);
  b.Open(0);
  ExpectSum(a, b, 1);
  EventLoop loop("stale");
  std::atomic<bool> is_answered = false;
  auto stale = hub_->Connect(
      Side::Address(0),
      {.executor = &loop,
       .on_frame = [&](const wire::Frame& frame) { is_answered = frame.has_hello_reply(); }},
      kPatience);
  ASSERT_TRUE(stale.ok()) << stale.status();
  wire::Frame hello;
  hello.mutable_hello()->mutable_worker()->set_index(1);
  hello.mutable_hello()->mutable_worker()->set_incarnation(55);
  ASSERT_TRUE((*stale)->Send(std::move(hello)).ok());
  EXPECT_TRUE(Until([&] { return is_answered.load(); }));
  ExpectSum(a, b, 2, 5);
  EXPECT_EQ(a.broken() + b.broken(), 0);
  (*stale)->Close(absl::CancelledError("over"));
  loop.Stop();
}

TEST_F(CollectiveStreamsTest, BreakAWayWhoseMemberSaysWhatNoneSays) {
  ExpectBroken("device 5", [](Side& b) {  // of which it has one
    const collective::Published wrong{.device = 5, .sequence = 7};
    EXPECT_TRUE((*b.Peer(0))->courier()->Send(&wrong, {}).ok());
  });
}

TEST_F(CollectiveStreamsTest, BreakAWayOnWhichShardsAreSent) {
  ExpectBroken("not of collectives", [](Side& b) {
    wire::Frame shard;
    shard.mutable_bulk()->mutable_bytes()->set_data("a piece");
    b.SayToAll(shard);
  });
}

// Its side of the way was open all the time: it comes to know of this worker late.
TEST_F(CollectiveStreamsTest, OpenAWayThatWasGivenUpWhenTheMemberComes) {
  Side a(hub_.get(), 0, std::chrono::milliseconds(300)), b(hub_.get(), 1, kPatience);
  a.Open(1);
  a.Ask(1);
  ASSERT_TRUE(Until([&] { return a.broken() > 0; }));
  b.Open(0);
  ASSERT_TRUE(b.Peer(0).ok());
  EXPECT_TRUE(Until([&] { return a.broken() == 2; })) << "launches ask for the way again";
  for (uint64_t order = 1; order < 4; ++order) ExpectSum(a, b, order);
}

// The answer to a Hello that was not sent, while the connection is still being opened.
TEST_F(CollectiveStreamsTest, WaitForTheLinkOfAMemberThatAnswersTooEarly) {
  LateTransport late(hub_.get());
  EventLoop loop("early");
  std::shared_ptr<transport::Link> told;
  auto listener = *hub_->Listen(Side::Address(1), [&](std::shared_ptr<transport::Link> link) {
    told = std::move(link);
    loop.Post([&told] {
      wire::Frame reply;
      reply.mutable_hello_reply();
      EXPECT_TRUE(told->Send(std::move(reply)).ok());
    });
    return transport::LinkEvents{.executor = &loop};
  });
  Side a(&late, 0, kPatience);
  a.Open(1);
  const auto hears = OpenStream(&loop);
  ASSERT_TRUE(Until([&] { return late.frames() > 0 && a.accepted() > 0; }));
  std::atomic<bool> has_begun = false;
  Thread begins("begins", [&] {
    auto launch = a.Begin(1, 1);
    has_begun = true;
    EXPECT_TRUE(launch.ok()) << launch.status();
    if (launch.ok()) (*launch)->Abort(absl::CancelledError("over"));
  });
  const auto since = Clock::now();
  EXPECT_TRUE(
      Until([&] { return has_begun || Clock::now() - since > std::chrono::milliseconds(200); }));
  EXPECT_FALSE(has_begun);
  a.Do([] {});  // the watch of a launch would have looked for the link
  late.Open();
  begins.Join();
  EXPECT_TRUE(has_begun);
  listener.reset();
  loop.Stop();
}

TEST_F(CollectiveStreamsTest, GiveUpAMemberThatCannotBeReachedAndTryAgainForTheNextLaunch) {
  Side a(hub_.get(), 0, std::chrono::milliseconds(300));
  a.Open(1);
  const auto refused = a.Peer(1);
  EXPECT_TRUE(absl::IsDataLoss(refused.status())) << refused.status();
  EXPECT_EQ(wire::ToFailure(refused.status()).worker(), "island0/worker1");
  EXPECT_TRUE(Until([&] { return a.broken() > 0; }));  // so the next launch asks again
  Side b(hub_.get(), 1, kPatience);
  b.Open(0);
  ExpectSum(a, b, 1);
}

}  // namespace
}  // namespace gangway::worker
