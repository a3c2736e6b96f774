// One limit for all kinds of bytes, refusals with the sizes, and waits for room.
#include "gangway/base/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace gangway {
namespace {

using ::testing::HasSubstr;
using Kind = MemoryBudget::Kind;

TEST(MemoryBudgetTest, AllKindsShareOneLimitAndRefusalsNameTheSizes) {
  MemoryBudget budget("the head", "--head-memory", 100);
  ASSERT_TRUE(budget.TryAcquire(Kind::kHostBuffers, 60).ok());
  ASSERT_TRUE(budget.TryAcquire(Kind::kPrograms, 30).ok());
  const absl::Status refused = budget.TryAcquire(Kind::kPieces, 11);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("11 bytes do not fit: the head holds 90 bytes for its clients: 60 of "
                        "uploads and downloads, 30 of programs; its limit is 100 (--head-memory)"));
  EXPECT_TRUE(budget.TryAcquire(Kind::kPieces, 10).ok());
  EXPECT_EQ(budget.use().total(), 100u);
  EXPECT_EQ(budget.use().of(Kind::kPrograms), 30u);
  budget.Release(Kind::kHostBuffers, 60);
  budget.Release(Kind::kPrograms, 30);
  budget.Release(Kind::kPieces, 10);
  EXPECT_EQ(budget.use().total(), 0u);
}

TEST(MemoryBudgetTest, WaitsForRoomButNotForWhatNeverFits) {
  MemoryBudget budget("the head", "--head-memory", 100);
  ASSERT_TRUE(budget.TryAcquire(Kind::kHostBuffers, 100).ok());
  const auto far = Clock::now() + std::chrono::seconds(60);
  EXPECT_EQ(budget.Acquire(Kind::kHostBuffers, 101, far).code(),
            absl::StatusCode::kResourceExhausted);
  std::thread releaser([&budget] { budget.Release(Kind::kHostBuffers, 100); });
  EXPECT_TRUE(budget.Acquire(Kind::kHostBuffers, 50, far).ok());
  releaser.join();
}

}  // namespace
}  // namespace gangway
