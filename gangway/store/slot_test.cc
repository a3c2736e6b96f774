// Tests of slot.h.
#include "gangway/store/slot.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "gangway/base/clock.h"
#include "gangway/wire/failure.h"

namespace gangway::store {
namespace {

class FakeBuffer final : public device::Buffer {
 public:
  explicit FakeBuffer(int* alive) : alive_(alive) { ++*alive_; }
  ~FakeBuffer() override { --*alive_; }
  int device() const override { return 0; }
  const device::ArraySpec& spec() const override { return spec_; }
  std::string memory_kind() const override { return ""; }
  absl::StatusOr<size_t> OnDeviceBytes() const override { return 0; }
  void OnReady(device::StatusCallback callback) override { callback(absl::OkStatus()); }
  void CopyToHost(void*, size_t, device::StatusCallback on_done) override {
    on_done(absl::OkStatus());
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> CopyToDevice(int, std::string_view) override {
    return absl::UnimplementedError("a fake has no devices");
  }
  void Delete() override {}
  bool IsDeleted() const override { return false; }

 private:
  int* alive_;
  device::ArraySpec spec_;
};

class SlotTest : public ::testing::Test {
 protected:
  std::shared_ptr<Slot> Make() {
    return std::make_shared<Slot>(
        SlotName{
            .storage = StorageId(7), .shard = 1, .device = 1, .session = SessionId(5), .bytes = 64},
        ledger_);
  }
  Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(20); }

  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>(2);
  int alive_ = 0;
};

TEST_F(SlotTest, ReaderWaitsForTheProducer) {
  auto slot = Make();
  std::thread producer([&] { slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned); });
  absl::StatusOr<Content> content = slot->Wait(Soon());
  producer.join();
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_NE(content->buffer, nullptr);
  EXPECT_EQ(ledger_->Device(1), (Bytes{64, 64}));
  EXPECT_EQ(ledger_->Session(SessionId(5)), (Bytes{64, 64}));
}

TEST_F(SlotTest, DeadlineNamesTheShard) {
  auto slot = Make();
  absl::Status status = slot->Wait(Clock::now()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("shard 1 of storage 7"), std::string::npos) << status;
}

TEST_F(SlotTest, FirstFailureStaysAndBytesGo_ER1) {
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  slot->Fail(wire::MakeFailure(absl::StatusCode::kDataLoss, "first"));
  slot->Fail(wire::MakeFailure(absl::StatusCode::kInternal, "second"));
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(ledger_->Total().current, 0u);
  EXPECT_EQ(wire::ToFailure(slot->Wait(Soon()).status()).message(), "first");
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  EXPECT_EQ(alive_, 0) << "a failed slot keeps no buffer";
}

TEST_F(SlotTest, EmptiedByDonation) {
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  slot->Empty();
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(ledger_->Session(SessionId(5)).current, 0u);
  EXPECT_EQ(slot->Wait(Soon()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SlotTest, ShareMarksBothSides) {
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  EXPECT_EQ(slot->Share(Soon())->sharing, Sharing::kShared);
  EXPECT_EQ(slot->Wait(Soon())->sharing, Sharing::kShared);
}

TEST_F(SlotTest, ItIsSharedWhileItIsReadLater_GS2) {
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  EXPECT_EQ(slot->BeginRead(Soon())->sharing, Sharing::kShared);
  EXPECT_EQ(slot->BeginRead(Soon())->sharing, Sharing::kShared);
  slot->EndRead();
  EXPECT_EQ(slot->Wait(Soon())->sharing, Sharing::kShared);
  slot->EndRead();
  EXPECT_EQ(slot->Wait(Soon())->sharing, Sharing::kOwned);
}

TEST_F(SlotTest, WhatIsAskedForBeforeItIsThereIsSharedFromTheStart_OB1) {
  auto slot = Make();
  std::vector<absl::StatusOr<Content>> seen;
  auto keep = [&seen](absl::StatusOr<Content> content) { seen.push_back(std::move(content)); };
  slot->ShareWhenSettled(keep);
  EXPECT_TRUE(seen.empty());
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]->sharing, Sharing::kShared);
  EXPECT_EQ(slot->Wait(Soon())->sharing, Sharing::kShared) << "a later launch must not reuse it";
  slot->ShareWhenSettled(keep);
  ASSERT_EQ(seen.size(), 2u);
  slot->Empty();
  EXPECT_EQ(alive_, 1) << "a transfer in flight holds it";
  slot->ShareWhenSettled(keep);
  EXPECT_EQ(seen.at(2).status().code(), absl::StatusCode::kInvalidArgument);
  auto failed = Make();
  failed->ShareWhenSettled(keep);
  failed->Fail(wire::MakeFailure(absl::StatusCode::kDataLoss, "why"));
  EXPECT_EQ(wire::ToFailure(seen.at(3).status()).message(), "why");
}

TEST_F(SlotTest, ContentsThatBorrowMemoryAreTakenOnceWhenASecondGangReadsThem) {
  auto memory = std::make_shared<const std::byte>();
  const std::byte other{};
  const std::array places = {&other, memory.get()};
  const Ordinal first(7), second(9);
  auto slot = Make();
  EXPECT_FALSE(slot->NoteReadAt(places, Ordinal(5)).has_value()) << "it has none";
  const auto original = std::make_shared<FakeBuffer>(&alive_);
  slot->Fill(original, Sharing::kShared, memory);
  for (int argument = 0; argument < 2; ++argument)
    EXPECT_FALSE(slot->NoteReadAt(places, first).has_value()) << "one gang";
  EXPECT_FALSE(slot->NoteReadAt(std::span(places).first(1), second).has_value()) << "elsewhere";
  std::optional<Borrower> taken = slot->NoteReadAt(places, second);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->buffer, original);
  EXPECT_EQ(taken->bytes, memory);
  EXPECT_FALSE(slot->NoteReadAt(places, second).has_value()) << "it was taken";
  slot->PutBack(*taken);
  EXPECT_TRUE(slot->NoteReadAt(places, second).has_value()) << "it was put back";

  const auto copy = std::make_shared<FakeBuffer>(&alive_);
  slot->Replace(*original, copy);
  EXPECT_EQ(slot->Wait(Soon())->buffer, copy);
  EXPECT_EQ(slot->Wait(Soon())->sharing, Sharing::kOwned);
  slot->PutBack(*taken);
  slot->Replace(*original, original);
  EXPECT_FALSE(slot->NoteReadAt(places, second).has_value());
  EXPECT_EQ(slot->Wait(Soon())->buffer, copy) << "the slot does not hold the original any more";
  EXPECT_EQ(ledger_->Total().current, 64u);
  slot->Empty();
  slot->Replace(*copy, original);
  EXPECT_FALSE(slot->Wait(Soon()).ok());
  EXPECT_EQ(ledger_->Total().current, 0u);
}

// The same place may then be another array's.
TEST_F(SlotTest, MemoryThatTheRuntimeHasLetGoIsNotTaken) {
  auto memory = std::make_shared<const std::byte>();
  const std::array<const std::byte*, 1> places = {memory.get()};
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned, memory);
  EXPECT_FALSE(slot->NoteReadAt(places, Ordinal(1)).has_value());
  memory.reset();
  EXPECT_FALSE(slot->NoteReadAt(places, Ordinal(2)).has_value());
}

TEST_F(SlotTest, DroppedSlotRefunds) {
  auto slot = Make();
  slot->Fill(std::make_shared<FakeBuffer>(&alive_), Sharing::kOwned);
  slot.reset();
  EXPECT_EQ(ledger_->Device(1), (Bytes{0, 64}));
  EXPECT_EQ(alive_, 0);
}

TEST(LedgerTest, ARefundBeyondASessionsBooksClosesThemAndNoOthers) {
  std::vector<std::pair<SessionId, std::string>> told;
  Ledger ledger(
      2, [&told](SessionId session, const std::string& what) { told.emplace_back(session, what); });
  const SessionId broken(5), other(6);
  ledger.Charge(0, broken, 30);
  ledger.Charge(1, broken, 40);
  ledger.Charge(0, other, 100);
  ledger.Refund(0, broken, 31);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, broken);
  EXPECT_EQ(told[0].second, "a release of 31 bytes on local device 0, of which its books held 30");
  EXPECT_EQ(ledger.Device(0).current, 100u);
  EXPECT_EQ(ledger.Device(1).current, 0u);
  EXPECT_EQ(ledger.Total().current, 100u);
  EXPECT_EQ(ledger.Session(broken).current, 0u);
  ledger.Refund(1, broken, 40);  // its slots are emptied later
  ledger.Charge(1, broken, 40);
  EXPECT_EQ(ledger.Total().current, 100u);
  ledger.Refund(0, other, 100);
  EXPECT_EQ(ledger.Total().current, 0u);
  ledger.Refund(1, SessionId(7), 1);  // holds nothing
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].first, SessionId(7));
  EXPECT_EQ(ledger.Total().current, 0u);
}

}  // namespace
}  // namespace gangway::store
