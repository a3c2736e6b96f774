// The scheduler core alone: admission within the devices' memory.
#include "gangway/scheduler/core/memory_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "gangway/scheduler/core/core_test_util.h"
#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(IslandTest, AGangThatAloneExceedsTheBudgetFailsAtOnceWithTheSizes_GS2) {
  Make(40);
  Load(1, {0}, /*temp_bytes=*/20);
  Have(50, {0});
  Launch(1, 1, 50, 1, 60);
  ASSERT_EQ(done_.count(1), 1u);
  EXPECT_EQ(done_[1].code(), static_cast<int>(kExhausted));
  EXPECT_THAT(done_[1].message(),
              AllOf(HasSubstr("needs 52 bytes"), HasSubstr("arguments 16"), HasSubstr("results 16"),
                    HasSubstr("temporaries 20"), HasSubstr("budget is 40")));
  EXPECT_EQ(SentNodes(0), 0);
  Upload(2, 61, {0}, kSession, /*bytes=*/41);
  EXPECT_EQ(done_[2].code(), static_cast<int>(kExhausted));
  EXPECT_THAT(done_[2].message(), HasSubstr("41 bytes"));
}

// Each size comes from a client or a program. Sums of them must not wrap to something that fits.
TEST_F(IslandTest, SizesWhoseSumWrapsDoNotFit_GS2) {
  constexpr uint64_t kQuarter = uint64_t{1} << 62, kRest = UINT64_MAX - kQuarter + 1;
  for (uint64_t budget : {uint64_t{0}, uint64_t{1} << 40}) {
    Make(budget);
    Have(50, {0});
    const uint64_t used = Used(0);
    const std::vector<std::array<uint64_t, 3>> sizes = {
        // array, temporaries, reused
        {kBytes, UINT64_MAX, 0},        {kBytes, UINT64_MAX - 2 * kBytes + 1, 0},
        {kBytes, kRest, kBytes},        {kQuarter, 0, 0},
        {kQuarter, kQuarter, kQuarter}, {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    uint64_t number = 1;
    for (const auto& [array, temporaries, reused] : sizes) {
      Load(number, {0}, temporaries, reused, array);
      Launch(number, number, 50, 1, 60 + number, /*donate=*/reused != 0);
      EXPECT_EQ(done_[number].code(), static_cast<int>(kExhausted)) << budget << ", " << number;
      EXPECT_EQ(Used(0), used);
      ++number;
    }
    // Several results, none of which is too large alone.
    wire::IslandItem item;
    item.mutable_load()->set_executable(number);
    for (int i = 0; i < 4; ++i) item.mutable_load()->add_results()->set_shard_bytes(kQuarter);
    item.mutable_load()->add_devices(0);
    Item(item);
    wire::IslandItem launch = NodeItem(number);
    launch.mutable_node()->mutable_launch()->set_executable(number);
    for (uint64_t i = 0; i < 4; ++i) launch.mutable_node()->mutable_launch()->add_results(80 + i);
    Item(launch);
    EXPECT_EQ(done_[number].code(), static_cast<int>(kExhausted));
    Upload(90, 90, {0}, kSession, UINT64_MAX);
    EXPECT_EQ(done_[90].code(), static_cast<int>(kExhausted));
    EXPECT_EQ(Used(0), used);
  }
}

TEST_F(IslandTest, ArraysThatTogetherExceedAllNumbersWaitForOneAnother_GS2) {
  constexpr uint64_t kQuarter = uint64_t{1} << 62;
  Make(0);
  for (uint64_t i = 1; i <= 5; ++i) Upload(i, 60 + i, {0}, kSession, kQuarter);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  EXPECT_EQ(Used(0), kQuarter);
  Done(0, 1);
  Free({61});
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  EXPECT_EQ(Used(0), kQuarter);
  Tick(milliseconds(60000));
  EXPECT_EQ(done_[3].code(), static_cast<int>(kExhausted));
  EXPECT_EQ(Used(0), kQuarter);
}

TEST_F(IslandTest, AWaitForMemoryEndsAfterTheDeadlineAndNamesTheHolders_GS2) {
  Make(48);
  Load(1, {0});
  Have(50, {0});
  Have(51, {0}, /*session=*/8);
  Have(52, {0});
  Launch(1, 1, 50, 1, 60);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  ASSERT_TRUE(island_->next_deadline().has_value());
  EXPECT_EQ(*island_->next_deadline(), now_ + milliseconds(3000));
  Tick(milliseconds(2999));
  EXPECT_EQ(done_.count(1), 0u);
  Tick(milliseconds(1));
  EXPECT_EQ(done_[1].code(), static_cast<int>(kExhausted));
  EXPECT_THAT(done_[1].message(),
              AllOf(HasSubstr("16 bytes on device 0"), HasSubstr("48 of 48"),
                    HasSubstr("session 7 (this one) 32 bytes"), HasSubstr("session 8 16 bytes")));
  EXPECT_EQ(done_[1].program(), "step");
  EXPECT_EQ(done_[1].source(), "train.py:42");
  ASSERT_TRUE(done_[1].has_device());
  EXPECT_EQ(done_[1].device(), 0u);
  EXPECT_FALSE(island_->next_deadline().has_value());
}

TEST_F(IslandTest, EachGangWaitsForMemoryFromWhenItBecameReady_TM1) {
  Make(3 * kBytes);
  Load(1, {0}, /*temp_bytes=*/kBytes);
  Have(50, {0});
  Have(51, {0}, /*session=*/8);  // one array fits, and no program
  for (uint64_t i = 1; i <= 4; ++i) {
    Launch(i, 1, 50, 1, 60 + i);
    Tick(milliseconds(100));
  }
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Tick(milliseconds(2550));
  for (uint64_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(done_.count(i), 0u) << i;
    Tick(milliseconds(100));
    EXPECT_EQ(done_[i].code(), static_cast<int>(kExhausted)) << i;
  }
}

TEST_F(IslandTest, AGangThatDoesNotFitHoldsUpNoneThatDoes_GS2) {
  Make(4 * kBytes);
  Load(1, {0}, /*temp_bytes=*/2 * kBytes);
  Load(2, {0, 1});
  Have(50, {0, 1});
  Have(51, {0});
  Launch(1, 1, 50, 1, 60);
  Launch(2, 2, 50, 2, 61);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  Done(0, 2);
  Done(1, 2);
  Free({51, 61});
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
}

class OvertakenTest : public IslandTest {
 protected:
  // Gang 1 waits for 4 arrays' bytes, and as many gangs of one array's bytes as may have passed it. Storages 50 and 51
  // are held. Returns the next ordinal.
  uint64_t Overtake(uint64_t budget_bytes) {
    Make(budget_bytes);
    Load(1, {0}, /*temp_bytes=*/3 * kBytes);
    Load(2, {0});
    Have(50, {0});
    Upload(100, 51, {0}, kSession, budget_bytes - 4 * kBytes);
    Done(0, 100);
    TakeReleased();
    Launch(1, 1, 50, 1, 60);
    uint64_t ordinal = 2;
    for (int i = 0; i < MemoryQueue::kOvertakenMax; ++i, ++ordinal) {
      Launch(ordinal, 2, 50, 1, 60 + ordinal);
      EXPECT_THAT(TakeReleased(), ElementsAre(ordinal));
      Done(0, ordinal);
      Free({60 + ordinal});
    }
    return ordinal;
  }
};

TEST_F(OvertakenTest, AGangIsNotOvertakenForEver_GS2) {
  const uint64_t ordinal = Overtake(5 * kBytes);
  Launch(ordinal, 2, 50, 1, 60 + ordinal);
  EXPECT_THAT(TakeReleased(), IsEmpty()) << "it would overtake once more";
  Free({51});
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);  // its temporaries are free again
  EXPECT_THAT(TakeReleased(), ElementsAre(ordinal));
}

TEST_F(OvertakenTest, WhatMayNotOvertakeGoesOnWithTheOther_GS2) {
  const uint64_t ordinal = Overtake(8 * kBytes);
  Launch(ordinal, 2, 50, 1, 60 + ordinal);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Free({51});
  EXPECT_THAT(TakeReleased(), ElementsAre(1, ordinal)) << "there is room for both";
}

TEST(MemoryQueueTest, WhatFitsButLosesTheMemoryKeepsItsAge) {
  const TwoWorkerFleet two;
  const LayoutRef layout = two.LayoutOf({0});
  const MemoryQueue::Devices& devices = layout->sorted;
  MemoryQueue queue;
  queue.Add(Ordinal(1), layout, 5);
  for (int i = 0; i < MemoryQueue::kOvertakenMax; ++i) queue.NoteTaken(Ordinal(9), devices);
  EXPECT_FALSE(queue.MayTake(Ordinal(9), devices));
  EXPECT_TRUE(queue.MayTake(Ordinal(9), {IslandDevice(1)}));
  const auto fitting = queue.Fitting([](const MemoryQueue::Devices&) { return uint64_t{5}; });
  ASSERT_EQ(fitting.size(), 1u);
  EXPECT_EQ(fitting[0].first, Ordinal(1));
  queue.Add(Ordinal(1), layout, 5);  // another took it
  EXPECT_FALSE(queue.MayTake(Ordinal(9), devices));
  queue.Remove(Ordinal(1), *layout);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OvertakenTest, WhatMayNotOvertakeGoesOnWhenTheOtherFails_GS2) {
  const uint64_t ordinal = Overtake(5 * kBytes);
  Tick(milliseconds(2999));
  Launch(ordinal, 2, 50, 1, 60 + ordinal);
  TakeReleased();
  Tick(milliseconds(1));
  EXPECT_EQ(done_[1].code(), static_cast<int>(kExhausted));
  EXPECT_THAT(TakeReleased(), ElementsAre(ordinal));
}

TEST_F(IslandTest, AllThatFitsGoesOnAtOnceThoughMuchThatDoesNotIsOlder_GS2) {
  Make(1000);
  Upload(1, 50, {0}, kSession, 850);
  Upload(2, 51, {0}, kSession, 145);
  Done(0, 1);
  Done(0, 2);
  TakeReleased();
  uint64_t ordinal = 3;
  for (const auto& [count, bytes] : {std::pair(10, 10), {70, 500}, {10, 10}}) {
    for (int i = 0; i < count; ++i, ++ordinal)
      Upload(ordinal, 100 + ordinal, {0}, kSession, static_cast<uint64_t>(bytes));
  }
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Free({51});  // 150 bytes are free
  EXPECT_EQ(TakeReleased().size(), 15u);
}

TEST_F(IslandTest, TenThousandThatWaitForMemoryGoOnTogether_GS2) {
  constexpr uint64_t kCount = 10000;
  Make((kCount + 100) * kBytes);
  Load(1, {0});
  Have(50, {0});
  Upload(1, 51, {0}, kSession, /*bytes=*/(kCount + 99) * kBytes);
  Done(0, 1);
  TakeReleased();
  for (uint64_t i = 2; i < kCount + 2; ++i) Upload(i, 100 + i, {0}, kSession, i % 2 ? kBytes : 1);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Free({51});
  EXPECT_EQ(TakeReleased().size(), kCount);
}

TEST_F(IslandTest, AWaitForMemoryEndsWithADrop_GS2) {
  Make(48);
  Load(1, {0});
  for (uint64_t storage : {50, 51, 52}) Have(storage, {0});
  Launch(1, 1, 50, 1, 60);
  Free({51});
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  EXPECT_EQ(Used(0), 48u);
}

TEST_F(IslandTest, DonationSavesMemoryAndIsSettledAtTheEnd_GS2) {
  Make(40);
  Load(1, {0}, /*temp_bytes=*/8, /*alias_bytes=*/16);
  Have(50, {0});
  Launch(1, 1, 50, 1, 51, /*donate=*/true);
  Free({50});  // the controller frees what the launch consumes
  EXPECT_EQ(Used(0), 24u);
  Done(0, 1);
  EXPECT_EQ(Used(0), 16u);
  EXPECT_LE(island_->ledger().peak_bytes(IslandDevice(0)), 24u);
  Free({51});
  ExpectEmpty();
}

TEST_F(IslandTest, DonationSavesNoMemoryThatAFetchMayHold_GS2) {
  Make(40);
  Load(1, {0}, /*temp_bytes=*/0, /*alias_bytes=*/16);
  Have(50, {0});
  Fetch(1, 50, {0});
  Launch(2, 1, 50, 1, 51, /*donate=*/true);
  Free({50});
  EXPECT_EQ(Used(0), 32u);
  Done(0, 1);
  Done(0, 2);
  EXPECT_EQ(Used(0), 16u);
  Launch(3, 1, 51, 1, 52, /*donate=*/true);
  Free({51});
  EXPECT_EQ(Used(0), 16u) << "nothing fetches it";
  Done(0, 3);
  Free({52});
  ExpectEmpty();
}

TEST_F(IslandTest, AConsumedStorageIsChargedUntilTheCopyThatReadsItHasEnded_GS2) {
  Make(40);
  Load(1, {0}, 0, /*alias_bytes=*/16);
  Have(50, {0});
  Copy(1, 50, {0}, 90, {4});
  Launch(2, 1, 50, 1, 51, /*donate=*/true);
  Free({50});
  Done(0, 2);
  EXPECT_EQ(Used(0), 32u) << "the copy holds the buffer, and the result is another one";
  EXPECT_EQ(SentFrees(0, 50), 0) << "the copy uses it";
  Done(0, 1);
  EXPECT_EQ(SentFrees(0, 50), 1);
  EXPECT_EQ(Used(0), 16u);
}

TEST_F(IslandTest, DonatingOneShardLeavesTheOthersCharged_GS2) {
  Make(40);
  Load(1, {0}, 0, /*alias_bytes=*/16);
  Have(50, {0, 1});
  Fetch(1, 50, {1});
  Launch(2, 1, 50, 1, 51, /*donate=*/true);
  Free({50});
  Done(0, 2);
  EXPECT_EQ(Used(1), 16u) << "the fetch still reads the shard there";
  Done(0, 1);
  EXPECT_EQ(Used(0), 16u);
  EXPECT_EQ(Used(1), 0u);
}

TEST_F(IslandTest, AChainOfTenThousandRunsInTheMemoryOfFourArrays_GS2) {
  Make(4 * kBytes);
  Load(1, {0});
  Have(1, {0});
  constexpr uint64_t kLength = 10000;
  for (uint64_t i = 1; i <= kLength; ++i) {
    Launch(i, 1, i, 1, i + 1);
    Free({i});  // the client keeps only the last
  }
  Ordinals ran = TakeReleased();
  for (size_t next = 0; next < ran.size(); ++next) {
    Done(0, ran[next]);
    for (uint64_t ordinal : TakeReleased()) ran.push_back(ordinal);
    ASSERT_LE(Used(0), 4 * kBytes);
  }
  EXPECT_EQ(ran.size(), kLength);
  for (auto& [ordinal, failure] : done_) ASSERT_EQ(failure.code(), 0) << ordinal;
  Free({kLength + 1});
  ExpectEmpty();
}

}  // namespace
}  // namespace gangway::scheduler
