// Tests of lending_pool.h and lent_block.h.
#include <gtest/gtest.h>

#include <utility>

#include "gangway/base/clock.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/transport/bulk/lent_block.h"

namespace gangway::transport {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class LendingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::HelloReply answer;
    near_.Listen(listener_.get(), answer);
    far_.Connect(answer);
  }

  std::unique_ptr<DescriptorListener> listener_ = *DescriptorListener::Open();
  SegmentExchange near_, far_, nowhere_;
  int asked_ = 0;
  LendingPool pool_{{.bytes_max = 128 * kMiB,
                     .writable = true,
                     .idle_max = std::chrono::milliseconds(1000),
                     .drop_later = [this] { ++asked_; }}};
};

TEST_F(LendingTest, ABlockIsOfASegmentThatTheOtherEndMaps) {
  auto block = pool_.Allocate(near_, 4096);
  ASSERT_NE(block, nullptr);
  EXPECT_NE(far_.Find(NameOf(*block, 4096)), nullptr);
  EXPECT_EQ(pool_.Allocate(nowhere_, 4096), nullptr) << "the other end is on another host";
  EXPECT_EQ(pool_.Allocate(near_, 129 * kMiB), nullptr) << "TM-2";
  EXPECT_EQ(pool_.Allocate(near_, 0), nullptr);
}

TEST_F(LendingTest, WhatIsReturnedIsUsedAgain) {
  std::shared_ptr<SharedBlock> block = pool_.Allocate(near_, 4096);
  const std::pair<uint64_t, size_t> place(block->segment(), block->offset());
  LentBlock lent(std::move(block));
  LentBlock moved(std::move(lent));
  EXPECT_FALSE(lent);  // NOLINT(bugprone-use-after-move)
  ASSERT_TRUE(moved);
  moved.Return().reset();
  auto again = pool_.Allocate(near_, 4096);
  EXPECT_EQ(std::pair(again->segment(), again->offset()), place);
}

// A reader or writer that has not acknowledged may still access it.
TEST_F(LendingTest, OB3_WhatIsNotReturnedIsNotUsedAgain) {
  LentBlock lent(pool_.Allocate(near_, 4096));
  const uint64_t segment = lent->segment();
  LentBlock other(pool_.Allocate(near_, 4096));
  ASSERT_EQ(other->segment(), segment);
  lent = LentBlock();
  EXPECT_NE(pool_.Allocate(near_, 4096)->segment(), segment);
  other.Return();
  EXPECT_NE(pool_.Allocate(near_, 4096)->segment(), segment);
}

TEST_F(LendingTest, OB3_TheEndOfALinkRetiresWhatWasLentOnIt) {
  auto lendings = std::make_unique<Lendings>();
  std::shared_ptr<SharedBlock> first = pool_.Allocate(near_, 4096);
  const uint64_t segment = first->segment();
  lendings->Lend({FetchId(1), 0}, std::move(first));
  lendings->Lend({FetchId(1), 1}, pool_.Allocate(near_, 4096));
  EXPECT_EQ(lendings->TakeBack({FetchId(2), 0}), nullptr);
  EXPECT_NE(lendings->TakeBack({FetchId(1), 0}), nullptr);
  EXPECT_EQ(lendings->TakeBack({FetchId(1), 0}), nullptr) << "twice";
  EXPECT_EQ(lendings->size(), 1u);
  EXPECT_EQ(pool_.Allocate(near_, 4096)->segment(), segment);
  lendings.reset();
  EXPECT_NE(pool_.Allocate(near_, 4096)->segment(), segment);
}

TEST_F(LendingTest, OB3_ANameUsedTwiceGivesOnlyTheLaterBlockBack) {
  Lendings lendings;
  std::shared_ptr<SharedBlock> first = pool_.Allocate(near_, 4096);
  const uint64_t segment = first->segment();
  lendings.Lend({FetchId(1), 0}, std::move(first));
  lendings.Lend({FetchId(1), 0}, pool_.Allocate(near_, 4096));
  EXPECT_NE(lendings.TakeBack({FetchId(1), 0}), nullptr);
  EXPECT_EQ(lendings.size(), 0u);
  EXPECT_NE(pool_.Allocate(near_, 4096)->segment(), segment);
}

TEST_F(LendingTest, IdleSegmentsAreDroppedAfterAWhileAndTheOtherEndHearsOfThem) {
  auto block = pool_.Allocate(near_, 4096);
  const uint64_t segment = block->segment();
  EXPECT_EQ(asked_, 0);
  block.reset();
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(pool_.DropIdle(Clock::now()).empty());
  EXPECT_EQ(asked_, 2) << "it is idle, but not for long enough";
  EXPECT_EQ(near_.TakeGone(pool_.DropIdle(Clock::now() + std::chrono::hours(1))),
            std::vector<uint64_t>{segment});
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(pool_.shared()->bytes(), 0u);
}

}  // namespace
}  // namespace gangway::transport
