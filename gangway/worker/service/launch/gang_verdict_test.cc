// Tests of gang_verdict.h, for a gang of two positions with one argument each.
#include "gangway/worker/service/launch/gang_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/device/sim/sim_backend.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/device/node_task_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

enum class Waits { kNowhere, kInRuntime };

class GangVerdictTest : public testing::Test {
 protected:
  GangVerdictTest() {
    for (int device = 0; device < 2; ++device) {
      auto slot = std::make_shared<store::Slot>(
          store::SlotName{
              .storage = StorageId(1), .device = device, .session = SessionId(1), .bytes = 4},
          ledger_);
      positions_.push_back(
          {.number = static_cast<uint32_t>(device), .device = device, .arguments = {slot}});
    }
  }
  void Make(Waits waits) { verdict_.emplace(*task_, positions_, waits == Waits::kInRuntime); }
  store::Slot& slot(size_t position) { return *positions_[position].arguments[0]; }
  void Fill(size_t position) {
    slot(position).Fill(FloatsOn(*backend_, positions_[position].device, {1}),
                        store::Sharing::kOwned);
  }
  void Fail(size_t position, std::string_view why) {
    slot(position).Fail(wire::MakeFailure(absl::StatusCode::kDataLoss, std::string(why)));
  }
  static Clock::time_point Soon() { return Clock::now() + milliseconds(20); }
  static Clock::time_point Later() { return Clock::now() + milliseconds(20'000); }

  const std::unique_ptr<device::SimBackend> backend_ = device::OpenSim({.device_count = 2});
  const std::shared_ptr<store::Ledger> ledger_ = std::make_shared<store::Ledger>(2);
  const std::shared_ptr<IdleTask> task_ =
      std::make_shared<IdleTask>(std::make_shared<TaskEnvironment>());
  std::vector<LocalPosition> positions_;
  std::optional<GangVerdict> verdict_;
};

TEST_F(GangVerdictTest, AnArgumentThatHasFailedFailsAllPositions_ER1) {
  Make(Waits::kNowhere);
  Fail(1, "its worker is gone");
  EXPECT_THAT(verdict_->Take(Soon()).message(), HasSubstr("its worker is gone"));
  EXPECT_THAT(verdict_->Take(Soon()).message(), HasSubstr("its worker is gone"));
  ASSERT_TRUE(task_->failure().has_value());
  EXPECT_THAT(task_->failure()->message(), HasSubstr("its worker is gone"));
}

TEST_F(GangVerdictTest, OnlyTheFirstPositionThatAsksLooksAtTheArguments) {
  Make(Waits::kNowhere);
  EXPECT_EQ(verdict_->Take(Soon()), absl::OkStatus()) << "arguments that are pending are no reason";
  Fail(1, "it came late");
  Fill(0);
  EXPECT_EQ(verdict_->Take(Soon()), absl::OkStatus());
  EXPECT_TRUE(verdict_->Arguments(0, Soon()).ok());
  EXPECT_THAT(verdict_->Arguments(1, Soon()).status().message(), HasSubstr("it came late"));
  task_->Note(absl::InternalError("a device could not execute"), 0);
  EXPECT_THAT(verdict_->Take(Soon()).message(), HasSubstr("a device could not execute"));
}

TEST_F(GangVerdictTest, ACommittedGangRunsWhateverBecomesOfTheSlots) {
  Make(Waits::kInRuntime);
  Fill(0);
  Fill(1);
  const auto buffer = slot(1).Wait(Later())->buffer;
  ASSERT_EQ(verdict_->Take(Later()), absl::OkStatus());
  ASSERT_TRUE(verdict_->Arguments(0, Later()).ok());
  Fail(1, "its worker is gone");
  task_->Note(absl::InternalError("another failure"), 0);
  EXPECT_EQ(verdict_->Take(Soon()), absl::OkStatus());
  const auto contents = verdict_->Arguments(1, Soon());
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->at(0).buffer, buffer);
  EXPECT_EQ(contents->at(0).sharing, store::Sharing::kShared);
}

TEST_F(GangVerdictTest, AnArgumentThatFailsBeforeTheFirstPositionHasItsOwnFailsAll) {
  Make(Waits::kInRuntime);
  Fill(0);
  Fill(1);
  ASSERT_EQ(verdict_->Take(Later()), absl::OkStatus());
  Fail(1, "its worker is gone");
  EXPECT_THAT(verdict_->Arguments(1, Soon()).status().message(), HasSubstr("its worker is gone"));
  EXPECT_THAT(verdict_->Take(Soon()).message(), HasSubstr("its worker is gone"));
  EXPECT_THAT(verdict_->Arguments(0, Soon()).status().message(), HasSubstr("its worker is gone"));
}

TEST_F(GangVerdictTest, TheFirstPositionWaitsForTheArgumentsOfAll_TM1) {
  Make(Waits::kInRuntime);
  Fill(0);
  const absl::Status late = verdict_->Take(Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  Fill(1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(verdict_->Take(Soon()))) << "one verdict for all";
}

}  // namespace
}  // namespace gangway::worker
