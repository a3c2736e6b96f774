// Broken sums of one session's bytes: that session ends, its bytes are counted again, and the others go on.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {

// Breaks the books, which no message can.
struct IslandPeer {
  static bool Credit(Island& island, uint64_t session, uint32_t device, uint64_t bytes) {
    const IslandDevice devices[] = {IslandDevice(device)};
    return !island.state_.books.ledger_.Credit(SessionId(session), devices, bytes);
  }
  static void Charge(Island& island, uint64_t session, uint32_t device, uint64_t bytes) {
    const IslandDevice devices[] = {IslandDevice(device)};
    island.state_.books.ledger_.Charge(SessionId(session), devices, bytes);
  }
};

namespace {

using ::testing::HasSubstr;

constexpr uint64_t kOther = kSession + 1;

class BooksTest : public IslandTest {
 protected:
  std::vector<wire::BrokenBooks> Broken() const {
    std::vector<wire::BrokenBooks> broken;
    for (const wire::Report& report : actions_.to_controller) {
      if (report.has_broken_books()) broken.push_back(report.broken_books());
    }
    return broken;
  }
  void EndSession(uint64_t session, const Ordinals& storages) {
    wire::IslandItem end;
    end.mutable_end_session()->set_session(session);
    Item(end);
    Free(storages);
  }
};

TEST_F(BooksTest, ACreditBeyondASessionsBooksEndsThatSessionOnly) {
  Make(/*budget_bytes=*/100);
  Have(50, {0, 1, 2});
  Have(51, {0, 1, 2});
  Have(60, {0, 1}, kOther);
  EXPECT_EQ(Used(0), 48u);
  ASSERT_TRUE(IslandPeer::Credit(*island_, kSession, 0, 20));  // storage 50 needs 16, 12 are left
  Free({50});
  ASSERT_EQ(Broken().size(), 1u);
  EXPECT_EQ(Broken()[0].session(), kSession);
  EXPECT_EQ(Broken()[0].failure().code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(Broken()[0].failure().message(), HasSubstr("a release of 16 bytes on device 0, of "
                                                         "which its books held 12"));
  ASSERT_EQ(actions_.notices.size(), 1u);
  EXPECT_EQ(actions_.notices[0], Broken()[0].failure().message());
  // Right again: storage 51 and the other session's 60.
  EXPECT_EQ(Used(0), 32u);
  EXPECT_EQ(Used(1), 32u);
  EXPECT_EQ(Used(2), 16u);
  EndSession(kSession, {51});
  EXPECT_TRUE(Broken().empty());
  EXPECT_EQ(Used(0), 16u);
  EXPECT_EQ(Used(2), 0u);
  // The other session has its array, and all other memory.
  Upload(10, 70, {0}, kOther, 84);
  EXPECT_EQ(TakeReleased(), Ordinals{10});
  Done(0, 10);
  Free({60, 70});
  ExpectEmpty();
}

TEST_F(BooksTest, WorkUnderWayIsCountedAgainToo) {
  Make(/*budget_bytes=*/1000);
  Load(1, {0, 1}, /*temp_bytes=*/40, /*alias_bytes=*/8);
  Have(50, {0, 1});
  Have(60, {0, 1});
  Launch(10, 1, 50, 2, 61, /*donate=*/true);
  EXPECT_EQ(Used(0), 16u + 16 + 16 + 40 - 8);
  ASSERT_TRUE(IslandPeer::Credit(*island_, kSession, 0, Used(0)));
  Free({60});
  EXPECT_EQ(Broken().size(), 1u);
  EXPECT_EQ(Used(0), 16u + 16 + 40 - 8);
  Done(0, 10);
  EXPECT_TRUE(Broken().empty());
  EXPECT_EQ(Used(0), 16u);
  EndSession(kSession, {50, 61});
  EXPECT_TRUE(Broken().empty());
  ExpectEmpty();
}

TEST_F(BooksTest, BytesThatNobodyReturnsAreFoundWhenTheSessionsBooksAreCountedAgain) {
  Make(/*budget_bytes=*/100);
  Have(50, {0});
  IslandPeer::Charge(*island_, kSession, 1, 90);  // a leak, on another device
  ASSERT_TRUE(IslandPeer::Credit(*island_, kSession, 0, 16));
  Free({50});
  EXPECT_EQ(Broken().size(), 1u);
  ExpectEmpty();
}

TEST_F(BooksTest, WhatAWorkerFindsReachesTheController) {
  FromWorker event{0, Incarnation(11), {}};
  wire::BrokenBooks& broken = *event.batch.add_reports()->mutable_broken_books();
  broken.set_session(kSession);
  *broken.mutable_failure() = wire::MakeFailure(absl::StatusCode::kInternal, "what it found");
  Step(std::move(event));
  ASSERT_EQ(Broken().size(), 1u);
  EXPECT_EQ(Broken()[0].failure().message(), "what it found");
  EXPECT_EQ(actions_.notices.size(), 1u);
}

}  // namespace
}  // namespace gangway::scheduler
