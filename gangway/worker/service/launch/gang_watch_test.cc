// Tests of gang_watch.h, with a gang whose members the test moves.
#include "gangway/worker/service/launch/gang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{5000};

class FakeGang final : public WatchedGang {
 public:
  std::vector<int> Standing() const override { return standing; }
  wire::Failure DescribeStanding(const std::vector<int>& devices,
                                 milliseconds duration) const override {
    return wire::MakeFailure(absl::StatusCode::kInternal,
                             std::to_string(devices.size()) + " devices for " +
                                 std::to_string(duration.count()) + " ms");
  }
  std::vector<int> standing;
};

class GangWatchTest : public testing::Test {
 protected:
  // What a look every half second until `later` finds first.
  std::optional<wire::Failure> LookUntil(milliseconds later) {
    for (const Clock::time_point end = now_ + later; now_ < end; now_ += milliseconds(500)) {
      if (auto found = watch_.Look(now_, kLimit)) return found;
    }
    return std::nullopt;
  }

  GangWatch watch_;
  Clock::time_point now_ = Clock::time_point() + milliseconds(1000);
  std::shared_ptr<FakeGang> gang_ = std::make_shared<FakeGang>();
};

TEST_F(GangWatchTest, AGangThatLostAMemberAndStandsIsFoundAfterTheLimit_ER2) {
  gang_->standing = {0, 2, 3};
  watch_.Note(gang_);
  EXPECT_EQ(LookUntil(kLimit), std::nullopt);
  const auto found = LookUntil(milliseconds(1));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->message(), "3 devices for 5000 ms");
}

TEST_F(GangWatchTest, AGangWhoseMembersEndIsForgotten) {
  gang_->standing = {0, 1};
  watch_.Note(gang_);
  EXPECT_EQ(LookUntil(milliseconds(4000)), std::nullopt);
  gang_->standing = {1};  // it moves
  EXPECT_EQ(LookUntil(milliseconds(4500)), std::nullopt);
  gang_.reset();
  EXPECT_EQ(LookUntil(milliseconds(60'000)), std::nullopt);
}

TEST_F(GangWatchTest, MembersThatWaitForEarlierWorkDoNotStand) {
  watch_.Note(gang_);
  EXPECT_EQ(LookUntil(milliseconds(60'000)), std::nullopt);
  gang_->standing = {1};
  EXPECT_EQ(LookUntil(kLimit), std::nullopt);
  EXPECT_TRUE(LookUntil(milliseconds(1)).has_value());
}

}  // namespace
}  // namespace gangway::worker
