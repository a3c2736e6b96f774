// A worker reports that it found the memory sums of a session broken: that session ends, with the worker's words, and
// the others go on. The worker that reports it is played by the test; all else are the real roles.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/match.h"

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/cli/tool_link.h"
#include "gangway/simulation/processes.h"
#include "gangway/simulation/user.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::simulation {
namespace {

using std::chrono::seconds;

uint64_t SessionNamed(transport::Transport& network, const std::string& name) {
  auto status = cli::AskStatus(network, Processes::kControlAddress, Processes::kToken, seconds(5));
  EXPECT_TRUE(status.ok()) << status.status();
  for (const auto& session : status->sessions()) {
    if (session.name() == name) return session.session();
  }
  ADD_FAILURE() << "no session " << name;
  return 0;
}

// Worker 1 of island 0, while the real one is down.
class PlayedWorker {
 public:
  explicit PlayedWorker(transport::Transport& network) {
    auto welcome = std::make_shared<Answer<bool>>();
    auto link = network.Connect(Processes::kControlAddress,
                                {.executor = &loop_,
                                 .on_frame =
                                     [welcome](const wire::Frame& frame) {
                                       if (frame.has_hello_reply())
                                         welcome->Set(!frame.hello_reply().has_failure());
                                     },
                                 .on_closed = [](const absl::Status&) {}},
                                seconds(5));
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *link;
    wire::Frame frame;
    wire::Hello& hello = *frame.mutable_hello();
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_build_version(wire::kBuildVersion);
    hello.set_role(wire::ROLE_WORKER);
    hello.set_name("played");
    hello.set_token(Processes::kToken);
    wire::WorkerRegistration& worker = *hello.mutable_worker();
    worker.set_index(1);
    worker.set_incarnation(77);
    worker.set_host("played");
    worker.set_data_address("played:1");
    worker.set_platform("sim");
    worker.set_device_count(1);
    Send(std::move(frame));
    EXPECT_EQ(welcome->WaitFor(seconds(5)), true);
  }
  ~PlayedWorker() {
    link_->Close(absl::CancelledError("done"));
    loop_.Stop();
  }

  void ReportBroken(uint64_t session, const std::string& found) {
    wire::Frame frame;
    wire::BrokenBooks& broken =
        *frame.mutable_report_batch()->add_reports()->mutable_broken_books();
    broken.set_session(session);
    *broken.mutable_failure() = wire::MakeFailure(absl::StatusCode::kInternal, found);
    Send(std::move(frame));
  }

 private:
  void Send(wire::Frame frame) {
    frame.set_sequence(++sequence_);
    EXPECT_TRUE(link_->Send(std::move(frame)).ok());
  }

  EventLoop loop_{"played"};
  std::shared_ptr<transport::Link> link_;
  uint64_t sequence_ = 0;
};

TEST(BrokenBooksTest, TheirSessionEndsAndNoOther_ER_1) {
  spdlog::set_level(spdlog::level::critical);
  FiberWorld world(1);
  const absl::Status ended = world.Run(
      [&] {
        Processes processes(&world, {.islands = {{1, 1}}, .restart_delay = seconds(20)});
        ASSERT_TRUE(processes.Start().ok());
        User broken(processes, "broken"), other(processes, "other");
        auto network = processes.Join("played");
        processes.KillWorker({0, 1});
        Answer<bool>().WaitFor(seconds(1));
        PlayedWorker worker(*network);
        const Ready lost = std::make_shared<Answer<absl::Status>>();
        broken.client().OnLost([lost](const absl::Status& why) { lost->Set(why); });
        const ArrayHandle kept = other.Make({0}, 4);
        worker.ReportBroken(SessionNamed(*network, "broken"), "what it found");
        const auto why = lost->WaitFor(seconds(2));
        ASSERT_TRUE(why.has_value()) << "the session did not end";
        EXPECT_EQ(why->code(), absl::StatusCode::kInternal) << *why;
        EXPECT_TRUE(absl::StrContains(why->message(), "what it found")) << *why;
        User::Expect(other.Fetch(kept, {0}));
        User::Expect(other.WhenReady(other.Make({0}, 4)));
        User again(processes, "again");
        again.Make({0}, 4);
      },
      std::chrono::hours(1));
  EXPECT_TRUE(ended.ok()) << ended;
}

}  // namespace
}  // namespace gangway::simulation
