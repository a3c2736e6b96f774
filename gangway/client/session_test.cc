// Session: how it opens, what it does with what the cluster sends, and how it ends, against a scripted cluster.
#include "gangway/client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "gangway/client/array_literal.h"
#include "gangway/client/scripted_cluster.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class SessionTest : public ::testing::Test {
 protected:
  void Make() { session_.emplace(cluster_.Options()); }
  // The outcome of an opening that waits for what the test sends.
  std::future<absl::Status> OpenBeside() {
    cluster_.answers = false;
    Make();
    auto opened = std::async(std::launch::async, [this] { return session_->Open(); });
    EXPECT_TRUE(cluster_.controller().WaitHellos(1));
    return opened;
  }
  void Open() {
    Make();
    const absl::Status opened = session_->Open();
    ASSERT_TRUE(opened.ok()) << opened;
  }
  void SendWelcome(uint64_t session) {
    wire::Frame frame;
    *frame.mutable_hello_reply() = cluster_.reply;
    frame.mutable_hello_reply()->set_session(session);
    cluster_.controller().Send(std::move(frame));
  }
  void SendWorker(bool up) {
    wire::SessionEvent event;
    *event.mutable_worker_state()->mutable_worker() = ScriptedCluster::Worker(1);
    event.mutable_worker_state()->set_up(up);
    cluster_.controller().SendEvent(std::move(event));
  }
  void SendEnded(const std::string& why) {
    wire::SessionEvent event;
    *event.mutable_ended() = wire::MakeFailure(absl::StatusCode::kInternal, why);
    cluster_.controller().SendEvent(std::move(event));
  }
  // Events come in order, so the earlier ones are handled when this one is.
  void AwaitEvents() {
    Arrival<absl::Status> seen;
    session_->questions().Await(std::vector{9_array},
                                [&](const absl::Status& status) { seen.Set(status); });
    const std::vector<wire::Op> ops = cluster_.controller().Ops(++awaits_);
    wire::SessionEvent event;
    event.mutable_await_done()->set_await(ops.back().await().await());
    cluster_.controller().SendEvent(std::move(event));
    EXPECT_TRUE(seen.Get().ok());
  }

  ScriptedCluster cluster_;
  std::optional<Session> session_;  // ends before the cluster
  size_t awaits_ = 0;
};

TEST_F(SessionTest, TheFirstWelcomeCountsAndNothingBeforeIt) {
  auto opened = OpenBeside();
  SendEnded("too early");
  SendWelcome(42);
  EXPECT_EQ(opened.get(), absl::OkStatus());
  SendWelcome(43);
  AwaitEvents();
  EXPECT_EQ(session_->cluster().session, 42u);
  EXPECT_TRUE(session_->submitter().lost().ok());
}

TEST_F(SessionTest, TheLossOfTheControllerEndsTheOpening) {
  auto opened = OpenBeside();
  cluster_.controller().Cut();
  const absl::Status why = opened.get();
  EXPECT_TRUE(absl::IsUnavailable(why)) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("was lost"));
}

TEST_F(SessionTest, ALossEndsWhatIsPendingBeforeItIsTold) {
  Open();
  std::vector<std::string> heard;  // on the loop, until the loss is told
  Arrival<absl::Status> lost, late;
  session_->OnLost([&](const absl::Status& why) {
    heard.push_back("lost");
    lost.Set(why);
  });
  session_->questions().Await(std::vector{1_array},
                              [&](const absl::Status&) { heard.push_back("await"); });
  session_->fetches().Fetch(1_array, std::vector<uint32_t>{0},
                            {.on_done = [&](const absl::Status&) { heard.push_back("fetch"); }});
  cluster_.controller().Ops(2);
  cluster_.controller().Cut();
  EXPECT_TRUE(absl::IsUnavailable(lost.Get()));
  EXPECT_THAT(heard, UnorderedElementsAre("await", "fetch", "lost"));
  EXPECT_EQ(heard.back(), "lost");
  session_->OnLost([&](const absl::Status& why) { late.Set(why); });
  EXPECT_TRUE(absl::IsUnavailable(late.Get()));
  EXPECT_EQ(lost.count(), 1u);
}

TEST_F(SessionTest, ItCountsTheLossesOfWorkers) {
  Open();
  SendWorker(/*up=*/false);
  SendWorker(/*up=*/true);
  SendWorker(/*up=*/false);
  AwaitEvents();
  EXPECT_EQ(session_->losses(), 2u);
}

TEST_F(SessionTest, ItsEndCancelsWhatIsPendingAndTellsOfNoLoss) {
  Open();
  Arrival<absl::Status> awaited, lost;
  session_->OnLost([&](const absl::Status& why) { lost.Set(why); });
  session_->questions().Await(std::vector{1_array},
                              [&](const absl::Status& why) { awaited.Set(why); });
  session_.reset();
  EXPECT_EQ(awaited.count(), 1u);
  EXPECT_TRUE(absl::IsCancelled(awaited.Get()));
  EXPECT_EQ(lost.count(), 0u);
}

}  // namespace
}  // namespace gangway::client
