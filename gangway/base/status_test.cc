// Tests of status.h.
#include "gangway/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/strings/cord.h"

namespace gangway {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

absl::Status Check(int value) {
  if (value >= 0) return absl::OkStatus();
  absl::Status error = absl::OutOfRangeError("below zero");
  error.SetPayload("test/record", absl::Cord("the record"));
  return error;
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  GANGWAY_RETURN_IF_ERROR(Check(value));
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  GANGWAY_ASSIGN_OR_RETURN(auto first, Box(a));
  std::unique_ptr<int> second;
  GANGWAY_ASSIGN_OR_RETURN(second, Box(b), "summand ", 2);
  return *first + *second;
}

TEST(StatusTest, SuccessGoesOn) {
  absl::StatusOr<int> sum = Sum(1, 2);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(*sum, 3);
}

TEST(StatusTest, AnErrorReturnsWithItsCodeMessageAndPayloads) {
  absl::Status error = Sum(-1, 2).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error.message(), "below zero");
  EXPECT_EQ(error.GetPayload("test/record"), absl::Cord("the record"));
}

TEST(StatusTest, ContextIsPrependedAndThePayloadsStay) {
  absl::Status error = Sum(1, -2).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error.message(), "summand 2: below zero");
  EXPECT_EQ(error.GetPayload("test/record"), absl::Cord("the record"));
}

TEST(StatusTest, ContextOfASuccessIsNotEvaluated) {
  int evaluated = 0;
  auto checked = [&evaluated](int value) -> absl::Status {
    GANGWAY_RETURN_IF_ERROR(Check(value), "evaluation ", ++evaluated);
    return absl::OkStatus();
  };
  EXPECT_TRUE(checked(1).ok());
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(checked(-1).message(), "evaluation 1: below zero");
  EXPECT_EQ(evaluated, 1);
}

TEST(StatusTest, PlacesNameTheWayOfTheError) {
  absl::Status error = Sum(1, -2).status();
  EXPECT_THAT(PlacesOf(error), MatchesRegex("status_test\\.cc:[0-9]+ status_test\\.cc:[0-9]+"));
  EXPECT_THAT(error.ToString(), HasSubstr(PlacesOf(error)));
  EXPECT_EQ(PlacesOf(Check(-1)), "");
}

TEST(StatusTest, AStatusOrServesForItsStatus) {
  auto checked = [](const absl::StatusOr<int>& result) -> std::optional<absl::Status> {
    GANGWAY_RETURN_IF_ERROR(result);
    return std::nullopt;
  };
  EXPECT_EQ(checked(5), std::nullopt);
  EXPECT_EQ(checked(absl::NotFoundError("no value"))->message(), "no value");
}

TEST(StatusTest, NoContextLeavesAStatusUnchanged) {
  EXPECT_TRUE(AddContext(absl::OkStatus(), "context").ok());
  EXPECT_EQ(AddContext(Check(-1), ""), Check(-1));
}

}  // namespace
}  // namespace gangway
