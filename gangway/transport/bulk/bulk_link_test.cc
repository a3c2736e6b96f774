// The life of a link, over the transport inside a process: both ends, what each refuses, and when it is dialed again.
#include "gangway/transport/bulk/bulk_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "gangway/base/futex.h"
#include "gangway/base/thread.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = BulkLink::State;

constexpr seconds kPatience{20};
constexpr seconds kLimit{5};

// Connections carry frames at once, but are said to be open only after Open.
class LateTransport final : public Transport {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    return hub_->Listen(address, std::move(accept), options);
  }
  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                milliseconds limit, LinkOptions options) override {
    auto link = hub_->Connect(address, std::move(events), limit, options);
    while (!is_open_) YieldCore();
    return link;
  }
  void Delay() { is_open_ = false; }
  void Open() { is_open_ = true; }

 private:
  const std::unique_ptr<Transport> hub_ = NewInprocTransport();
  std::atomic<bool> is_open_ = true;
};

wire::Frame Heartbeat(uint64_t number) {
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(number);
  return frame;
}

// A link that dials "door", and the peer there, which does what a test has it do. All state belongs to the loop.
class BulkLinkTest : public ::testing::Test {
 protected:
  struct Lost {
    absl::Status why;
    State was;
  };

  BulkLinkTest() {
    Do([this] { link_ = MakeLink(/*receiver=*/nullptr); });
  }
  ~BulkLinkTest() override {
    transport_.Open();
    Do([this] { link_->Close(absl::CancelledError("over")); });
    listener_.reset();
    loop_.Stop();
    receiver_.Stop();
  }

  std::shared_ptr<BulkLink> MakeLink(Executor* receiver, size_t piece_fields_max = 0) {
    BulkLink::Options options;
    options.loop = &loop_;
    options.receiver = receiver;
    options.dialer = &dialer_;
    options.address = "door";
    options.link.queue_bytes_max = 1000;
    options.piece_fields_max = piece_fields_max;
    options.stamp = {.epoch = 3, .incarnation = Incarnation(7)};
    BulkLink::Events events;
    events.on_open = [this](const wire::HelloReply& answer) { opened_.push_back(answer); };
    events.on_lost = [this](const absl::Status& why, State was) { lost_.push_back({why, was}); };
    events.on_redial = [this] { redials_.push_back(Clock::now()); };
    return std::make_shared<BulkLink>(std::move(options), std::move(events));
  }

  void Listen() {
    listener_ = *transport_.Listen(
        "door",
        [this](std::shared_ptr<Link> link) {
          loop_.Post([this, link = std::move(link)] {
            accepted_.push_back(std::make_shared<BulkLink>(
                link, FrameSender::Stamp{.incarnation = Incarnation(7)}));
          });
          return LinkEvents{
              .executor = &loop_,
              .on_frame = [this](wire::Frame frame) { received_.push_back(std::move(frame)); },
              .on_closed = [this](const absl::Status& why) { ends_.push_back(why); }};
        },
        {});
  }

  void Do(const std::function<void()>& task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  // On the loop.
  bool Until(const std::function<bool()>& condition) {
    const auto deadline = Clock::now() + kPatience;
    for (bool holds = false; !holds; YieldCore()) {
      Do([&] { holds = condition(); });
      if (holds) return true;
      if (Clock::now() > deadline) return false;
    }
    return true;
  }

  void Dial(absl::Status taken = absl::OkStatus()) {
    Do([&] {
      wire::Hello hello;
      hello.set_name("dialer");
      link_->Dial(std::move(hello), [this, taken](wire::Frame frame) {
        taken_.push_back(std::move(frame));
        ++taken_count_;
        return taken;
      });
    });
  }
  // Listens, dials, and answers.
  void Open() {
    Listen();
    Dial();
    ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
    Do([this] { accepted_[0]->Answer(); });
    ASSERT_TRUE(Until([this] { return link_->is_open(); }));
  }

  LateTransport transport_;
  EventLoop loop_{"links"};
  EventLoop receiver_{"receiver"};
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<BulkLink>> accepted_;
  std::vector<wire::Frame> received_;  // by the peer
  std::vector<absl::Status> ends_;     // of the peer's connections
  std::vector<wire::HelloReply> opened_;
  std::vector<Lost> lost_;
  std::vector<Clock::time_point> redials_;
  std::vector<wire::Frame> taken_;  // by the owner of link_
  std::atomic<int> taken_count_ = 0;
  Dialer dialer_{&loop_, &transport_};
  std::shared_ptr<BulkLink> link_;
};

TEST_F(BulkLinkTest, IsOpenOnceItsHelloIsAnswered) {
  Listen();
  EXPECT_EQ(link_->state(), State::kDown);
  Dial();
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  const wire::Frame& hello = received_[0];
  EXPECT_EQ(hello.hello().name(), "dialer");
  EXPECT_EQ(hello.hello().protocol_version(), wire::kProtocolVersion);
  EXPECT_EQ(hello.hello().build_version(), wire::kBuildVersion);
  EXPECT_EQ(hello.hello().process_id(), ProcessId());
  EXPECT_EQ(hello.epoch(), 3u);
  EXPECT_EQ(hello.incarnation(), 7u);
  EXPECT_EQ(hello.sequence(), 1u);
  Do([this] {
    EXPECT_EQ(link_->state(), State::kGreeting);
    EXPECT_TRUE(accepted_[0]->Send(Heartbeat(1)).ok());  // before its answer: counts for nothing
    wire::HelloReply answer;
    answer.set_session(5);
    accepted_[0]->Answer(std::move(answer));
    accepted_[0]->Answer();  // a second answer does not open it again
    EXPECT_TRUE(accepted_[0]->Send(Heartbeat(2)).ok());
  });
  ASSERT_TRUE(Until([this] { return !taken_.empty(); }));
  EXPECT_TRUE(link_->is_open());
  EXPECT_EQ(link_->hellos(), 1);
  ASSERT_EQ(opened_.size(), 1u);
  EXPECT_EQ(opened_[0].session(), 5u);
  EXPECT_EQ(opened_[0].protocol_version(), wire::kProtocolVersion);
  EXPECT_EQ(opened_[0].build_version(), wire::kBuildVersion);
  EXPECT_EQ(taken_[0].heartbeat().time_ns(), 2u);
  EXPECT_EQ(taken_[0].incarnation(), 7u);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(BulkLinkTest, NumbersTheFramesThatTheLinkTakes) {
  Open();
  Do([this] {
    wire::Frame large;
    large.mutable_bulk()->mutable_bytes()->set_data(std::string(2000, 'x'));
    EXPECT_TRUE(link_->Send(std::move(large)).ok());
    EXPECT_FALSE(link_->Send(Heartbeat(1)).ok()) << "the queue is full";
    bool was_taken = false;
    EXPECT_FALSE(link_->sender()->Send(Heartbeat(1), [&] { was_taken = true; }).ok());
    EXPECT_FALSE(was_taken);
    EXPECT_TRUE(link_->sender()->is_full());
    EXPECT_GT(link_->sender()->progress().queued, 2000u);
    EXPECT_GE(link_->sender()->progress().taken, link_->sender()->progress().queued);
  });
  ASSERT_TRUE(Until([this] { return received_.size() == 2; }));
  Do([this] {
    bool was_taken = false;
    EXPECT_TRUE(link_->sender()->Send(Heartbeat(2), [&] { was_taken = true; }).ok());
    EXPECT_TRUE(was_taken);
  });
  ASSERT_TRUE(Until([this] { return received_.size() == 3; }));
  for (uint64_t i = 0; i < received_.size(); ++i) EXPECT_EQ(received_[i].sequence(), i + 1);
}

TEST_F(BulkLinkTest, IsLostWithTheReasonOfARefusal) {
  Listen();
  Dial();
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  Do([this] { accepted_[0]->Refuse(absl::PermissionDeniedError("not you")); });
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  EXPECT_TRUE(absl::IsPermissionDenied(lost_[0].why)) << lost_[0].why;
  EXPECT_EQ(lost_[0].why.message(), "not you");
  EXPECT_EQ(lost_[0].was, State::kGreeting);
  EXPECT_EQ(link_->state(), State::kDown);
  EXPECT_EQ(link_->sender(), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(link_->Send(Heartbeat(1))));
  EXPECT_TRUE(opened_.empty());
  EXPECT_EQ(lost_.size(), 1u) << "the end of the connection is no second loss";
}

TEST_F(BulkLinkTest, IsLostWithTheEndOfItsConnection) {
  Open();
  Do([this] { accepted_[0]->Close(absl::UnavailableError("cut")); });
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  EXPECT_NE(lost_[0].why.message().find("cut"), absl::string_view::npos) << lost_[0].why;
  EXPECT_EQ(lost_[0].was, State::kOpen);
}

TEST_F(BulkLinkTest, IsLostWhenNothingListens) {
  Dial();
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  EXPECT_EQ(lost_[0].was, State::kDialing);
  EXPECT_EQ(link_->hellos(), 0);
}

TEST_F(BulkLinkTest, IsLostWithTheErrorOfItsOwner) {
  Listen();
  Dial(absl::InvalidArgumentError("no shard"));
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  Do([this] {
    accepted_[0]->Answer();
    for (uint64_t i = 0; i < 2; ++i) EXPECT_TRUE(accepted_[0]->Send(Heartbeat(i)).ok());
  });
  ASSERT_TRUE(Until([this] { return !ends_.empty(); }));
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0].why.message(), "no shard");
  EXPECT_EQ(taken_.size(), 1u) << "nothing is taken after an error";
}

TEST_F(BulkLinkTest, IsLostWithPiecesThatDoNotFit) {
  Do([this] { link_ = MakeLink(/*receiver=*/nullptr, kHostCallFieldsMax); });
  Open();
  Do([this] {
    wire::Frame frame;
    frame.add_attachments()->set_bytes(5);  // of which none came
    EXPECT_TRUE(accepted_[0]->Send(std::move(frame)).ok());
  });
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  EXPECT_TRUE(taken_.empty());
}

TEST_F(BulkLinkTest, IsSilentToItsOwnerOnceThatClosesIt) {
  Open();
  Do([this] {
    EXPECT_TRUE(accepted_[0]->Send(Heartbeat(1)).ok());
    link_->Redial();
    link_->Close(absl::CancelledError("enough"));
    EXPECT_TRUE(absl::IsUnavailable(link_->Send(Heartbeat(1))));
  });
  ASSERT_TRUE(Until([this] { return !ends_.empty(); }));
  EXPECT_NE(ends_[0].message().find("enough"), absl::string_view::npos) << ends_[0];
  std::promise<void> later;  // than the redial would be
  loop_.PostAt(Clock::now() + 2 * BulkLink::kRedialFirst, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_TRUE(taken_.empty() && lost_.empty() && redials_.empty());
}

TEST_F(BulkLinkTest, DropsTheConnectionThatComesAfterItWasGivenUp) {
  Listen();
  transport_.Delay();
  Dial();
  ASSERT_TRUE(Until([this] { return !accepted_.empty(); }));
  Do([this] { link_->Close(absl::CancelledError("over")); });
  transport_.Open();
  ASSERT_TRUE(Until([this] { return !ends_.empty(); }));
  EXPECT_TRUE(received_.empty() && lost_.empty());
  EXPECT_EQ(link_->state(), State::kDown);
}

// From what does not wait for the Hello, as no worker does.
TEST_F(BulkLinkTest, IsNotOpenBeforeItHasALink) {
  Listen();
  transport_.Delay();
  Dial();
  ASSERT_TRUE(Until([this] { return !accepted_.empty(); }));
  Do([this] {
    accepted_[0]->Answer();
    EXPECT_TRUE(accepted_[0]->Send(Heartbeat(1)).ok());
  });
  Do([] {});  // both have come
  Do([this] {
    EXPECT_EQ(link_->state(), State::kDialing);
    EXPECT_TRUE(opened_.empty() && taken_.empty());
  });
  transport_.Open();
  ASSERT_TRUE(Until([this] { return link_->is_open(); }));
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  EXPECT_TRUE(received_[0].has_hello());
  EXPECT_EQ(opened_.size(), 1u);
}

TEST_F(BulkLinkTest, IsRedialedAtGrowingIntervalsUntilItHasSettled) {
  auto redial = [this] {
    const auto begun = Clock::now();
    const size_t before = redials_.size();
    Do([this] { link_->Redial(); });
    EXPECT_TRUE(Until([&] { return redials_.size() > before; }));
    return redials_.back() - begun;
  };
  for (int times : {1, 2, 4, 8}) EXPECT_GE(redial(), times * BulkLink::kRedialFirst);
  Do([this] { link_->Settle(); });
  EXPECT_LT(redial(), 8 * BulkLink::kRedialFirst);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(BulkLinkTest, CountsTheHellosOfAllConnections) {
  Open();
  Do([this] { link_->Lose(absl::UnavailableError("lost by its owner")); });
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0].was, State::kOpen);
  Dial();
  ASSERT_TRUE(Until([this] { return received_.size() == 2; }));
  EXPECT_EQ(link_->hellos(), 2);
  EXPECT_EQ(received_[1].sequence(), 1u) << "each connection has its own numbers";
}

TEST_F(BulkLinkTest, KnowsForHowLongItHasBeenDown) {
  const auto start = Clock::now();
  EXPECT_EQ(link_->DownFor(start + kLimit), Clock::duration()) << "nothing wants it";
  Dial();
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  Dial();  // in vain, too: it counts from the first time
  ASSERT_TRUE(Until([this] { return lost_.size() == 2; }));
  const auto now = Clock::now();
  EXPECT_GT(link_->DownFor(now + kLimit), kLimit);
  EXPECT_LE(link_->DownFor(now), now - start);
  Do([this, now] { link_->Skip(kLimit, now); });
  EXPECT_EQ(link_->DownFor(now + seconds(1)), seconds(1)) << "it stood still until now";
  Open();
  EXPECT_EQ(link_->DownFor(Clock::now() + kLimit), Clock::duration());
  Do([this] { link_->Close(absl::CancelledError("over")); });
  EXPECT_GE(link_->DownFor(Clock::now() + kLimit), kLimit);
}

TEST_F(BulkLinkTest, APeerThatDoesNotAnswerItsHelloIsSilent_TM1) {
  Listen();
  Dial();
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  Do([this] {
    const auto now = Clock::now();
    EXPECT_FALSE(link_->IsSilent(now, kLimit));
    EXPECT_TRUE(link_->IsSilent(now + kLimit, kLimit));
    link_->Skip(kLimit, now + kLimit);
    EXPECT_FALSE(link_->IsSilent(now + kLimit, kLimit));
    accepted_[0]->Answer();
  });
  ASSERT_TRUE(Until([this] { return link_->is_open(); }));
  Do([this] {
    const auto now = Clock::now();
    EXPECT_FALSE(link_->IsSilent(now + 2 * kLimit, kLimit)) << "nothing is awaited";
    link_->Await(now);
    EXPECT_TRUE(link_->IsSilent(now + kLimit, kLimit));
    link_->Rest();
    EXPECT_FALSE(link_->IsSilent(now + kLimit, kLimit));
  });
}

TEST_F(BulkLinkTest, AReplyToAQuestionIsASignOfLife_TM1) {
  Open();
  const auto begun = Clock::now();
  std::optional<uint64_t> first, second;
  Do([&] {
    link_->Await(begun);
    first = link_->Ask();
    second = link_->Ask();
  });
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  ASSERT_TRUE(Until([this] { return received_.size() == 3; }));
  EXPECT_EQ(received_[2].heartbeat().time_ns(), *second);
  while (Clock::now() == begun) YieldCore();
  Do([this] { EXPECT_TRUE(accepted_[0]->Send(BulkLink::ReplyTo(received_[2])).ok()); });
  ASSERT_TRUE(Until([this] { return taken_.size() == 1; }));
  EXPECT_EQ(taken_[0].heartbeat().time_ns(), *second);
  Do([&] { EXPECT_FALSE(link_->IsSilent(begun + kLimit, kLimit)); });
}

// A question waits behind them.
TEST_F(BulkLinkTest, FramesThatLeaveAreASignOfLife_TM1) {
  Open();
  const auto start = Clock::now();
  Do([this, start] {  // what is queued stays so until the loop runs its next round
    link_->Await(start);
    wire::Frame large;
    large.mutable_bulk()->mutable_bytes()->set_data(std::string(2000, 'x'));
    EXPECT_TRUE(link_->Send(std::move(large)).ok());
    EXPECT_FALSE(link_->Ask().has_value()) << "the link takes no more";
    EXPECT_FALSE(link_->IsSilent(start + seconds(4), kLimit));
    EXPECT_TRUE(link_->IsSilent(start + kLimit, kLimit)) << "nothing has left";
  });
  ASSERT_TRUE(Until([this] { return received_.size() == 2; }));
  Do([this, start] {
    EXPECT_FALSE(link_->IsSilent(start + seconds(7), kLimit)) << "it has left by then";
    EXPECT_FALSE(link_->IsSilent(start + seconds(11), kLimit));
    EXPECT_TRUE(link_->IsSilent(start + seconds(12), kLimit)) << "nothing more has";
  });
}

TEST_F(BulkLinkTest, TheEndThatWasDialedHearsWhatItsOwnerReports_TM1) {
  Open();
  Do([this] {
    BulkLink& peer = *accepted_[0];
    const auto now = Clock::now();
    peer.Await(now);
    EXPECT_FALSE(peer.IsSilent(now + seconds(4), kLimit));
    EXPECT_TRUE(peer.IsSilent(now + kLimit, kLimit));
    peer.Hear(now + seconds(1));
    EXPECT_FALSE(peer.IsSilent(now + kLimit, kLimit));
  });
}

// While the loop is busy; their error reaches it.
TEST_F(BulkLinkTest, AReceiverOfItsOwnTakesTheFrames) {
  Do([this] { link_ = MakeLink(&receiver_); });
  Listen();
  Dial(absl::InvalidArgumentError("no message"));
  ASSERT_TRUE(Until([this] { return received_.size() == 1; }));
  Do([this] {
    accepted_[0]->Answer();
    EXPECT_TRUE(accepted_[0]->Send(Heartbeat(1)).ok());
    const auto deadline = Clock::now() + kPatience;
    while (taken_count_ == 0 && Clock::now() < deadline) YieldCore();
    EXPECT_EQ(taken_count_, 1);
    EXPECT_TRUE(opened_.empty() && lost_.empty());
  });
  ASSERT_TRUE(Until([this] { return !lost_.empty(); }));
  EXPECT_EQ(opened_.size(), 1u);
  EXPECT_EQ(lost_[0].why.message(), "no message");
}

}  // namespace
}  // namespace gangway::transport
