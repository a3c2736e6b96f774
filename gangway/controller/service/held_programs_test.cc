// Programs are charged once each, and given back with their compile or their session.
#include "gangway/controller/service/held_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gangway::controller {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kProgram = HeldPrograms::kBytesMin;
constexpr SessionId kOne(1), kTwo(2);

class HeldProgramsTest : public ::testing::Test {
 protected:
  uint64_t Used() { return budget_->use().of(MemoryBudget::Kind::kPrograms); }

  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(
      "the head", "--head-memory", 3 * HeldPrograms::kCopies * kProgram);
  HeldPrograms held_{budget_};
};

TEST_F(HeldProgramsTest, WhatDoesNotFitIsRefusedWithTheSizes_TM2) {
  ASSERT_TRUE(held_.Take(kOne, ExecutableHandle(1), 2 * kProgram).ok());
  const absl::Status refused = held_.Take(kTwo, ExecutableHandle(1), 2 * kProgram);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("a program of 131072 bytes, of which the head holds 2 copies: 262144 bytes "
                        "do not fit: the head holds 262144 bytes for its clients"));
  EXPECT_TRUE(held_.Take(kTwo, ExecutableHandle(1), kProgram).ok());
  EXPECT_TRUE(held_.Take(kTwo, ExecutableHandle(2), kProgram - 1).ok())
      << "small ones are not charged";
  held_.End(kOne, ExecutableHandle(1));
  held_.End(kOne, ExecutableHandle(1));
  held_.End(kTwo, ExecutableHandle(2));
  EXPECT_EQ(Used(), 2 * kProgram);
}

TEST_F(HeldProgramsTest, AHandleInUseIsRefusedAndItsProgramStaysCharged) {
  ASSERT_TRUE(held_.Take(kOne, ExecutableHandle(1), kProgram).ok());
  for (const uint64_t bytes : {kProgram, uint64_t{1}})
    EXPECT_EQ(held_.Take(kOne, ExecutableHandle(1), bytes).code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Used(), 2 * kProgram);
}

TEST_F(HeldProgramsTest, ASessionsEndGivesItsProgramsBack_OB2) {
  ASSERT_TRUE(held_.Take(kOne, ExecutableHandle(1), kProgram).ok());
  ASSERT_TRUE(held_.Take(kOne, ExecutableHandle(UINT64_MAX), kProgram).ok());
  ASSERT_TRUE(held_.Take(kTwo, ExecutableHandle(1), kProgram).ok());
  held_.EndSession(kOne);
  EXPECT_EQ(Used(), 2 * kProgram) << "the other's";
  held_.EndSession(kTwo);
  EXPECT_EQ(Used(), 0u);
}

}  // namespace
}  // namespace gangway::controller
