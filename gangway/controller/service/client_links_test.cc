// Clients: who is welcomed when, who gets no session, and how their links end.
#include "gangway/controller/service/client_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/service/links_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ControllerConfig TwoWorkers() {
  ControllerConfig config;
  for (uint32_t i = 0; i < 2; ++i) {
    wire::Worker& worker = config.workers.emplace_back();
    worker.set_index(i);
    worker.add_devices(i);
  }
  return config;
}

class ClientLinksTest : public LinksTest {
 protected:
  ~ClientLinksTest() override {
    OnLoop([this] { links_.reset(); });
  }
  void Make(std::chrono::milliseconds welcome_max = std::chrono::minutes(1)) {
    const auto note = [this](const char* what) {
      return [this, what](SessionId session) { told_.push_back(absl::StrCat(what, session)); };
    };
    links_ = std::make_unique<ClientLinks>(
        &loop_, core_,
        ClientLinks::Options{.epoch = 5, .welcome_max = welcome_max, .data_key = "key"},
        ClientLinks::Events{.reply =
                                [] {
                                  wire::Frame frame;
                                  frame.mutable_hello_reply()->set_epoch(5);
                                  return frame;
                                },
                            .on_opened =
                                [this](const SessionOpened& opened) {
                                  told_.push_back(absl::StrCat("opened ", opened.session));
                                },
                            .on_lost = note("lost "),
                            .on_ended = note("ended "),
                            .say = [](const std::string&) {}});
  }
  void Up(uint32_t worker) {
    FromScheduler event;
    wire::WorkerState& state = *event.batch.add_reports()->mutable_worker_state();
    state.set_up(true);
    state.mutable_worker()->set_index(worker);
    state.mutable_worker()->set_incarnation(1 + worker);
    state.mutable_worker()->set_platform("sim");
    Actions actions;
    core_.Step(std::move(event), Clock::now(), actions);
  }
  SessionId Welcome() {
    wire::Hello hello;
    hello.set_role(wire::ROLE_CLIENT);
    hello.set_name("train.py");
    return links_->Welcome(link_, hello);
  }
  // Of a client that was welcomed.
  SessionId Open() {
    Up(0);
    Up(1);
    const SessionId session = Welcome();
    link_->sent.clear();
    told_.clear();
    return session;
  }
  void AddEvent(SessionId session) {
    wire::SessionEvent event;
    event.mutable_progress()->set_ended(3);
    links_->Add(session, std::move(event));
  }

  Controller core_{TwoWorkers()};
  std::unique_ptr<ClientLinks> links_;
  std::vector<std::string> told_;
};

TEST_F(ClientLinksTest, AClientIsWelcomedOnceAllWorkersAreUp) {
  OnLoop([this] {
    Make();
    Up(0);
    const SessionId session = Welcome();
    EXPECT_FALSE(links_->IsWelcome(session));
    EXPECT_TRUE(link_->sent.empty());
    wire::WhyReply why;
    links_->Explain(why);
    ASSERT_EQ(why.waits_size(), 1);
    EXPECT_EQ(why.waits(0).program(), "train.py");
    EXPECT_THAT(why.waits(0).workers(), ElementsAre("island0/worker1"));
    Up(1);
    links_->WelcomeAll();
    EXPECT_TRUE(links_->IsWelcome(session));
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(link_->sent[0].hello_reply().session(), session.number());
    EXPECT_EQ(link_->sent[0].hello_reply().topology().workers_size(), 2);
    EXPECT_FALSE(link_->sent[0].hello_reply().data_token().empty());
    EXPECT_THAT(told_, ElementsAre("opened 1"));
    why.Clear();
    links_->Explain(why);
    EXPECT_EQ(why.waits_size(), 0);
  });
}

TEST_F(ClientLinksTest, AClientWithoutAnyWorkerIsRefusedAtTheDeadline_TM1) {
  auto refused = std::make_shared<Answer<bool>>();
  OnLoop([&] {
    Make(std::chrono::milliseconds(20));
    link_->on_sent = [refused] { refused->Set(true); };
    Welcome();
    EXPECT_TRUE(link_->sent.empty());
  });
  ASSERT_TRUE(refused->WaitFor(kLimit));
  OnLoop([this] {
    EXPECT_THAT(link_->sent[0].hello_reply().failure().message(),
                HasSubstr("have been missing for 20 ms: island0/worker0, island0/worker1"));
    EXPECT_TRUE(link_->closed.has_value());
    EXPECT_THAT(told_, ElementsAre("lost 1"));
    EXPECT_TRUE(links_->empty());
  });
}

TEST_F(ClientLinksTest, TheEventsOfARoundAreOneFrame) {
  OnLoop([this] {
    Make();
    const SessionId session = Open();
    AddEvent(session);
    AddEvent(session);
    AddEvent(SessionId(99));
    links_->Flush();
    links_->Flush();
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(link_->sent[0].epoch(), 5u);
    EXPECT_EQ(link_->sent[0].session_events().events_size(), 2);
    EXPECT_EQ(links_->frames().sent, 1u);
    wire::Heartbeat beat;
    beat.set_time_ns(77);
    links_->OnBeat(session, beat);
    ASSERT_EQ(link_->sent.size(), 2u);
    EXPECT_EQ(link_->sent[1].heartbeat().time_ns(), 77u);
  });
}

TEST_F(ClientLinksTest, TM2_AClientThatDoesNotReadLosesItsSession) {
  OnLoop([this] {
    Make();
    const SessionId session = Open();
    link_->refusal = absl::UnavailableError("closed");
    AddEvent(session);
    links_->Flush();
    EXPECT_TRUE(link_->closed.has_value());
    EXPECT_THAT(told_, ElementsAre("lost 1"));
    links_->OnClosed(session, absl::OkStatus());
    EXPECT_THAT(told_, ElementsAre("lost 1")) << "once";
  });
}

TEST_F(ClientLinksTest, ASessionThatTheCoreEndedIsToldWhyBeforeItsLinkCloses) {
  OnLoop([this] {
    Make();
    const SessionId session = Open();
    AddEvent(session);
    links_->End(session, absl::InternalError("broken sums"));
    EXPECT_FALSE(link_->closed.has_value());
    links_->Flush();
    EXPECT_EQ(link_->sent.size(), 1u);
    ASSERT_TRUE(link_->closed.has_value());
    EXPECT_EQ(std::string(link_->closed->message()), "broken sums");
    EXPECT_THAT(told_, ElementsAre("ended 1"));
    EXPECT_TRUE(links_->empty());
  });
}

TEST_F(ClientLinksTest, SessionsAreNumberedWithoutGaps) {
  OnLoop([this] {
    Make();
    for (uint64_t number = 1; number <= 3; ++number) EXPECT_EQ(Welcome(), SessionId(number));
    EXPECT_THAT(told_, IsEmpty());
  });
}

}  // namespace
}  // namespace gangway::controller
