// Tests of staging_memory.h.
#include "gangway/worker/service/memory/staging_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SessionId kOne(1), kTwo(2);
constexpr std::chrono::seconds kPatience{30};

class StagingMemoryTest : public testing::Test {
 protected:
  ~StagingMemoryTest() override {
    if (memory_ != nullptr) memory_->Close();
    loop_.Stop();
  }
  void Make(uint64_t bytes_max, milliseconds wait_max = milliseconds(30'000)) {
    memory_ = StagingMemory::Make({.bytes_max = bytes_max, .loop = &loop_, .wait_max = wait_max});
  }
  absl::StatusOr<StagingMemory::Charge> Take(
      SessionId session, uint64_t bytes,
      StagingMemory::Order order = StagingMemory::Order::kInTurn) {
    return memory_->Take(session, bytes, order);
  }
  using Outcome = std::shared_ptr<Answer<absl::Status>>;
  // Keeps what it gets in charges_, in the order of the grants.
  Outcome Await(SessionId session, uint64_t bytes) {
    auto outcome = std::make_shared<Answer<absl::Status>>();
    memory_->Await(session, bytes,
                   [this, outcome, session](absl::StatusOr<StagingMemory::Charge> charge) {
                     if (charge.ok()) {
                       order_.push_back(session.number());
                       charges_.push_back(*std::move(charge));
                       outcome->Set(absl::OkStatus());
                     } else {
                       outcome->Set(charge.status());
                     }
                   });
    return outcome;
  }
  static absl::StatusCode CodeOf(const Outcome& outcome) {
    return outcome->WaitFor(kPatience).value_or(absl::UnknownError("no answer")).code();
  }

  EventLoop loop_{"test"};
  std::shared_ptr<StagingMemory> memory_;
  std::vector<uint64_t> order_;
  std::vector<StagingMemory::Charge> charges_;
};

TEST_F(StagingMemoryTest, TM2_ThereIsOneTotalAndEachSessionHasAPartOfIt) {
  Make(100);
  auto first = Take(kOne, 70);
  ASSERT_TRUE(first.ok());
  auto beyond = Take(kOne, 6);
  EXPECT_EQ(beyond.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("6 bytes"));
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("70 of 100 bytes"));
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("70 of 75"));
  auto other = Take(kTwo, 30);
  ASSERT_TRUE(other.ok()) << "another session has its part";
  EXPECT_FALSE(Take(SessionId(3), 1).ok()) << "the total";
  first->Reset();
  other->Reset();
  EXPECT_EQ(memory_->used(), 0u);
  EXPECT_FALSE(Take(kOne, UINT64_MAX).ok());
}

TEST_F(StagingMemoryTest, AChargeThatMovesIsReturnedOnce) {
  Make(100);
  StagingMemory::Charge kept;
  {
    auto taken = Take(kOne, 10);
    kept = *std::move(taken);
    kept.Add(*Take(kOne, 5));
  }
  EXPECT_EQ(kept.bytes(), 15u);
  EXPECT_EQ(memory_->used(), 15u);
  kept.Reset();
  EXPECT_EQ(memory_->used(), 0u);
}

TEST_F(StagingMemoryTest, SessionsThatWaitTakeTurns) {
  Make(100);
  auto all = Take(kOne, 75);
  auto rest = Take(kTwo, 25);
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 3; ++i) outcomes.push_back(Await(kOne, 25));
  outcomes.push_back(Await(kTwo, 25));
  EXPECT_EQ(memory_->waiting(), 4u);
  EXPECT_FALSE(Take(kOne, 1).ok()) << "behind those that wait";
  all->Reset();
  for (const Outcome& each : {outcomes[0], outcomes[1], outcomes[3]})
    EXPECT_EQ(CodeOf(each), absl::StatusCode::kOk);
  EXPECT_THAT(order_, ElementsAre(1, 2, 1));
  rest->Reset();
  EXPECT_EQ(CodeOf(outcomes[2]), absl::StatusCode::kOk);
}

// An upload's bytes are here, whatever else its session waits for.
TEST_F(StagingMemoryTest, BytesThatArriveTakeWhatIsFree_TM2) {
  Make(100);
  auto held = Take(kOne, 50);
  const Outcome fetch = Await(kOne, 50);  // beyond the session's part
  EXPECT_FALSE(Take(kOne, 4).ok());
  auto upload = Take(kOne, 4, StagingMemory::Order::kIfRoom);
  EXPECT_TRUE(upload.ok()) << upload.status();
  EXPECT_FALSE(Take(kOne, 22, StagingMemory::Order::kIfRoom).ok()) << "beyond its part";
  upload->Reset();
  held->Reset();
  EXPECT_EQ(CodeOf(fetch), absl::StatusCode::kOk);
}

TEST_F(StagingMemoryTest, ALargeWaitDelaysNoSmallOneOfAnotherSession) {
  Make(100);
  auto some = Take(SessionId(3), 50);
  Outcome large = Await(kOne, 75);
  EXPECT_EQ(CodeOf(Await(kTwo, 10)), absl::StatusCode::kOk);
  charges_.clear();
  some->Reset();
  EXPECT_EQ(CodeOf(large), absl::StatusCode::kOk);
}

TEST_F(StagingMemoryTest, AWaitThatNothingEndsFailsWithTheSizes_TM1) {
  Make(100, milliseconds(100));
  auto held = Take(kOne, 75);
  EXPECT_EQ(CodeOf(Await(kOne, 60)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(Await(kOne, 76)), absl::StatusCode::kResourceExhausted) << "at once";
  EXPECT_EQ(memory_->waiting(), 0u);
}

TEST_F(StagingMemoryTest, OB2_AnEndedSessionWaitsForNothing) {
  Make(100);
  auto held = Take(kOne, 75);
  Outcome waiting = Await(kOne, 60);
  memory_->EndSession(kOne);
  EXPECT_EQ(CodeOf(waiting), absl::StatusCode::kCancelled);
  held->Reset();
  EXPECT_EQ(memory_->used(), 0u);
}

}  // namespace
}  // namespace gangway::worker
