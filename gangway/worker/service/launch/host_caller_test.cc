// Tests of host_caller.h, with a client that no call reaches.
#include "gangway/worker/service/launch/host_caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/worker/service/device/node_task_test_util.h"

namespace gangway::worker {
namespace {

class HostCallerTest : public testing::Test {
 protected:
  HostCallerTest() { calls_->Stop(absl::UnavailableError("the worker stops")); }
  HostCaller Make(HostCaller::OnFailure on_failure) {
    return HostCaller(task_, calls_, {.session = SessionId(1), .gang = Ordinal(7)}, on_failure);
  }

  const std::shared_ptr<HostCalls> calls_ =
      std::make_shared<HostCalls>(std::chrono::milliseconds(20), nullptr);
  const std::shared_ptr<IdleTask> task_ =
      std::make_shared<IdleTask>(std::make_shared<TaskEnvironment>());
};

TEST_F(HostCallerTest, AFailedCallEndsTheRunAndFailsTheGang) {
  HostCaller caller = Make(HostCaller::OnFailure::kEndsRun);
  EXPECT_EQ(caller.OnHostCall({}).message(), "the worker stops");
  ASSERT_TRUE(task_->failure().has_value());
  EXPECT_THAT(task_->failure()->message(), testing::HasSubstr("the worker stops"));
}

TEST_F(HostCallerTest, ARunThatOthersWaitForGoesOnForAThousandFailedCalls) {
  HostCaller caller = Make(HostCaller::OnFailure::kRunGoesOn);
  for (int i = 1; i < HostCaller::kFailedCallsMax; ++i)
    ASSERT_EQ(caller.OnHostCall({}), absl::OkStatus()) << i;
  EXPECT_FALSE(caller.OnHostCall({}).ok());
  ASSERT_TRUE(task_->failure().has_value());
  EXPECT_THAT(task_->failure()->message(), testing::HasSubstr("the worker stops"));
}

}  // namespace
}  // namespace gangway::worker
