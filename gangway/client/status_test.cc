// Statuses of the public header and absl's, into each other (client.h).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gangway/client/client.h"
#include "gangway/wire/failure.h"

namespace gangway {
namespace {

TEST(StatusTest, AFailureKeepsItsRecordBothWays) {
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kDataLoss, "gone", "save more often");
  failure.set_program("jit_step");
  failure.set_worker("island0/worker1");
  failure.set_gang(17);
  failure.set_device(0);
  const Status status = wire::ToStatus(failure);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), wire::ToStatus(failure).message());
  const FailureRecord record = status.record();
  EXPECT_EQ(record.advice, "save more often");
  EXPECT_EQ(record.program, "jit_step");
  EXPECT_EQ(record.worker, "island0/worker1");
  EXPECT_EQ(record.gang, 17u);
  EXPECT_EQ(record.device, 0u);
  EXPECT_FALSE(record.shard.has_value());
  EXPECT_EQ(wire::ToFailure(status).SerializeAsString(), failure.SerializeAsString());
}

TEST(StatusTest, OneThatAProgramMadeHasCodeAndText) {
  const Status made(StatusCode::kAborted, "enough");
  EXPECT_EQ(static_cast<absl::Status>(made), absl::AbortedError("enough"));
  EXPECT_TRUE(made.record().program.empty());
  EXPECT_TRUE(static_cast<absl::Status>(Status()).ok());
  EXPECT_TRUE(Status(absl::OkStatus()).ok());
}

TEST(ResultTest, HoldsAValueOrAFailure) {
  auto value = ToResult<std::unique_ptr<int>>(std::make_unique<int>(7));
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(**FromResult(std::move(value)), 7);
  const Result<std::string> failed = absl::NotFoundError("nowhere");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "nowhere");
  EXPECT_EQ(FromResult(failed).status(), absl::NotFoundError("nowhere"));
}

}  // namespace
}  // namespace gangway
