// Tests of reports.h.
#include "gangway/worker/service/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

using ::testing::HasSubstr;

class ReportsTest : public testing::Test {
 protected:
  // What the last frame had.
  const wire::ReportBatch& Last() const { return frames_.back().report_batch(); }
  bool TellsOfChange() {
    reports_.AddUsageIfChanged();
    const size_t before = frames_.size();
    reports_.Flush();
    return frames_.size() > before;
  }

  wire::Usage usage_;
  std::vector<wire::Frame> frames_;
  int added_ = 0;
  Reports reports_{{.identity = {.name = "island0/worker1", .incarnation = Incarnation(9)},
                    .send = [this](wire::Frame frame) { frames_.push_back(std::move(frame)); },
                    .on_added = [this] { ++added_; },
                    .usage = [this] { return usage_; }}};
};

TEST_F(ReportsTest, ARoundHasOneFrameWithTheReportsOfTheCoreFirst) {
  usage_.set_nodes(3);
  reports_.AddUsage(17);
  EXPECT_EQ(added_, 1);
  reports_.Add().mutable_gang_waits()->set_gang(4);
  EXPECT_EQ(added_, 2);
  wire::ReportBatch batch;
  batch.add_reports()->mutable_done()->set_ordinal(8);
  reports_.Send(std::move(batch));
  reports_.Flush();
  ASSERT_EQ(frames_.size(), 1u);
  ASSERT_EQ(Last().reports_size(), 3);
  EXPECT_EQ(Last().reports(0).done().ordinal(), 8u);
  EXPECT_EQ(Last().reports(1).usage().nodes(), 3u);
  EXPECT_EQ(Last().reports(1).usage().probe(), 17u);
  EXPECT_EQ(Last().reports(2).gang_waits().gang(), 4u);
}

TEST_F(ReportsTest, WithoutReportsOfTheCoreTheOthersGoAtTheEndOfTheRound) {
  reports_.Flush();
  EXPECT_TRUE(frames_.empty());
  reports_.AddUsage(1);
  EXPECT_TRUE(frames_.empty());
  reports_.Flush();
  reports_.Flush();
  ASSERT_EQ(frames_.size(), 1u);
  EXPECT_EQ(Last().reports(0).usage().probe(), 1u);
}

TEST_F(ReportsTest, UsageIsToldOnceForEachChangeOfBytes) {
  usage_.add_devices()->set_bytes(100);
  usage_.add_devices()->set_bytes(20);
  EXPECT_TRUE(TellsOfChange());
  EXPECT_EQ(Last().reports(0).usage().devices(1).bytes(), 20u);
  EXPECT_FALSE(TellsOfChange());
  usage_.set_nodes(5);
  EXPECT_FALSE(TellsOfChange()) << "the scheduler knows of its nodes";
  usage_.mutable_devices(1)->set_bytes(21);
  EXPECT_TRUE(TellsOfChange());
  usage_.mutable_data()->set_to_workers(1);
  EXPECT_TRUE(TellsOfChange());
  EXPECT_EQ(Last().reports(0).usage().data().to_workers(), 1u);
  EXPECT_FALSE(TellsOfChange());
  EXPECT_EQ(added_, 3);
}

TEST_F(ReportsTest, BrokenSumsAreToldWithTheSessionAndTheWorker) {
  reports_.AddBroken(SessionId(6), "more was freed than held");
  reports_.Flush();
  ASSERT_EQ(frames_.size(), 1u);
  const wire::BrokenBooks& broken = Last().reports(0).broken_books();
  EXPECT_EQ(broken.session(), 6u);
  EXPECT_EQ(wire::ToStatus(broken.failure()).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(broken.failure().message(), HasSubstr("session 6 broken: more was freed than held"));
  EXPECT_EQ(broken.failure().worker(), "island0/worker1");
  EXPECT_EQ(broken.failure().incarnation(), 9u);
}

}  // namespace
}  // namespace gangway::worker
