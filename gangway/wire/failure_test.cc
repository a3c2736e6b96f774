// ER-1: a failure record survives the trip through absl::Status.
#include "gangway/wire/failure.h"

#include <gtest/gtest.h>

namespace gangway::wire {
namespace {

TEST(FailureTest, ER1_RecordSurvivesTheTripThroughStatus) {
  Failure failure = MakeFailure(absl::StatusCode::kDataLoss, "array lost", "Make it again.");
  failure.set_worker("island0/worker1");
  failure.set_incarnation(7);
  failure.set_device(3);
  failure.set_gang(42);
  absl::Status status = ToStatus(failure);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ToFailure(status).SerializeAsString(), failure.SerializeAsString());
  EXPECT_EQ(ToText(failure),
            "array lost [gang 42, worker island0/worker1, incarnation 7, device 2] Make it again.");
}

TEST(FailureTest, StatusWithoutRecordKeepsCodeAndMessage) {
  Failure failure = ToFailure(absl::NotFoundError("no such thing"));
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(failure.message(), "no such thing");
  EXPECT_TRUE(ToStatus(Failure()).ok());
}

}  // namespace
}  // namespace gangway::wire
