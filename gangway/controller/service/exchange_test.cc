// How the controller runs the schedulers of its process.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/controller/service/links_test_util.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/island_port.h"

namespace gangway::controller {
namespace {

constexpr std::chrono::seconds kLimit{30};
constexpr uint32_t kIslands = 2;

// Answers each item with what `on_item` returns, and checks that neither side is entered while it runs.
class FakeScheduler final : public wire::IslandPort {
 public:
  std::function<void(const wire::IslandItem& item, wire::ReportBatch& reports)> on_item =
      [](const auto&, auto&) {};
  std::function<void(std::vector<wire::Frame>& frames)> on_give = [](auto&) {};
  int gives = 0;

  void Take(wire::Frame frame) override {
    EXPECT_FALSE(std::exchange(busy_, true)) << "entered while it runs";
    for (const wire::IslandItem& item : frame.island_batch().items()) on_item(item, reports_);
    if (frame.has_why_request())
      answers_.emplace_back().mutable_why_reply()->set_probe(frame.why_request().probe());
    busy_ = false;
  }

  std::vector<wire::Frame> Give() override {
    EXPECT_FALSE(busy_) << "entered while it runs";
    ++gives;
    std::vector<wire::Frame> frames = std::exchange(answers_, {});
    if (!reports_.reports().empty()) frames.emplace_back().mutable_report_batch()->Swap(&reports_);
    on_give(frames);
    return frames;
  }

 private:
  bool busy_ = false;
  wire::ReportBatch reports_;
  std::vector<wire::Frame> answers_;
};

// A tool's, which keeps what it is sent, and the round of the loop in which it was.
class ToolLink final : public transport::Link {
 public:
  explicit ToolLink(EventLoop* loop) : loop_(loop) {}
  absl::Status Send(wire::Frame frame) override {
    if (frame.has_hello_reply()) return absl::OkStatus();
    round_ = loop_->round();
    answer_.Set(std::move(frame));
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return 1; }
  size_t frame_bytes_max() const override { return SIZE_MAX; }
  void Close(const absl::Status&) override {}
  const transport::Peer& peer() const override { return peer_; }

  std::optional<wire::Frame> WaitForAnswer() { return answer_.WaitFor(kLimit); }
  uint64_t round() const { return round_; }  // after the answer

 private:
  EventLoop* const loop_;
  const transport::Peer peer_;
  uint64_t round_ = 0;
  Answer<wire::Frame> answer_;
};

class ExchangeTest : public LinksTest {
 protected:
  ExchangeTest() {
    ControllerOptions options;
    for (uint32_t island = 0; island < kIslands; ++island) {
      wire::Worker& worker = options.core.workers.emplace_back();
      worker.set_island(island);
      worker.add_devices(island);
    }
    service_ = std::make_unique<ControllerService>(&loop_, std::move(options));
    OnLoop([this] {
      for (uint32_t island = 0; island < kIslands; ++island)
        service_->Attach(island, &schedulers_[island]);
    });
  }
  ~ExchangeTest() override { loop_.Stop(); }

  // The round in which the question was asked.
  uint64_t Ask(const wire::Frame& question) {
    uint64_t round = 0;
    OnLoop([&] {
      wire::Hello hello;
      hello.set_role(wire::ROLE_TOOL);
      endpoint_ = *service_->Welcome(tool_, hello);
      round = loop_.round();
      endpoint_->OnFrame(question);
    });
    return round;
  }

  FakeScheduler schedulers_[kIslands];
  std::unique_ptr<ControllerService> service_;
  std::shared_ptr<ToolLink> tool_ = std::make_shared<ToolLink>(&loop_);
  std::unique_ptr<transport::Endpoint> endpoint_;
};

void AnswerProbe(const wire::IslandItem& item, wire::ReportBatch& reports) {
  if (item.probe() != 0) reports.add_reports()->mutable_usage()->set_probe(item.probe());
}

TEST_F(ExchangeTest, AQuestionIsAnsweredInTheRoundInWhichItCame) {
  for (FakeScheduler& scheduler : schedulers_) scheduler.on_item = AnswerProbe;
  wire::Frame question;
  question.mutable_status_request();
  const uint64_t asked = Ask(question);
  auto answer = tool_->WaitForAnswer();
  ASSERT_TRUE(answer && answer->has_status_reply());
  EXPECT_EQ(tool_->round(), asked);
}

TEST_F(ExchangeTest, SchedulersAreNotEnteredFromTheQuestionThatTheyAnswer) {
  wire::Frame question;
  question.mutable_why_request();
  const uint64_t asked = Ask(question);
  auto answer = tool_->WaitForAnswer();
  ASSERT_TRUE(answer && answer->has_why_reply());
  EXPECT_EQ(answer->why_reply().missing_islands_size(), 0);
  EXPECT_EQ(tool_->round(), asked);
}

TEST_F(ExchangeTest, ARoundGoesOnUntilNoSideHasMore) {
  schedulers_[0].on_item = AnswerProbe;
  uint64_t probe = 0;  // of the loop: kept for one turn
  schedulers_[1].on_item = [&probe](const auto& item, auto&) { probe = item.probe(); };
  schedulers_[1].on_give = [&probe, held = uint64_t{0}](std::vector<wire::Frame>& frames) mutable {
    const uint64_t ready = std::exchange(held, std::exchange(probe, 0));
    if (held != 0) frames.emplace_back().mutable_report_batch();
    if (ready != 0)
      frames.emplace_back().mutable_report_batch()->add_reports()->mutable_usage()->set_probe(
          ready);
  };
  wire::Frame question;
  question.mutable_status_request();
  const uint64_t asked = Ask(question);
  auto answer = tool_->WaitForAnswer();
  ASSERT_TRUE(answer && answer->has_status_reply());
  EXPECT_EQ(tool_->round(), asked);
  OnLoop([this] { schedulers_[1].on_give = [](auto&) {}; });
}

// TM-2: the loop does all else between the turns of an exchange that does not end.
TEST_F(ExchangeTest, TM2_ASchedulerThatAlwaysHasMoreHoldsUpNoLink) {
  constexpr int kMany = 2000;  // more than the other rounds of the loop have in this time
  constexpr std::chrono::seconds kSoon{10};
  auto given = std::make_shared<Answer<bool>>();
  OnLoop([&] {
    schedulers_[1].on_give = [this, given](std::vector<wire::Frame>& frames) {
      frames.emplace_back().mutable_report_batch();
      if (schedulers_[1].gives > kMany) given->Set(true);
    };
  });
  EXPECT_TRUE(given->WaitFor(kSoon)) << "the rest does not follow by itself";
  OnLoop([this] { schedulers_[1].on_give = [](auto&) {}; });
}

}  // namespace
}  // namespace gangway::controller
