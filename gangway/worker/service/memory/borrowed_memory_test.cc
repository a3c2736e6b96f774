// Tests of borrowed_memory.h, on a simulated device.
#include "gangway/worker/service/memory/borrowed_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "gangway/base/executor.h"
#include "gangway/device/element_type.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/worker/service/memory/staging_memory.h"

namespace gangway::worker {
namespace {

const device::ArraySpec kFloats{device::kF32, {4}};

class BorrowedMemoryTest : public testing::Test {
 protected:
  BorrowedMemoryTest() {
    environment_.backend = backend_.get();
    environment_.callbacks = std::make_shared<InFlight>();
    environment_.staging = StagingMemory::Make({.bytes_max = 64, .loop = &loop_});
    original_ = *backend_->BufferFromHost(0, "", kFloats, std::as_bytes(std::span(*memory_)),
                                          device::HostSemantics::kZeroCopy, nullptr);
    slot_->Fill(original_, store::Sharing::kOwned,
                std::shared_ptr<const std::byte>(memory_, places_[0]));
    Read();
  }

  void Read() { MoveToHeap(environment_, slot_, places_, Ordinal(++gangs_)); }
  std::shared_ptr<device::Buffer> buffer() { return slot_->Wait(Clock::now())->buffer; }

  EventLoop loop_{"loop"};
  const std::unique_ptr<device::Backend> backend_ = device::OpenSim({.device_count = 1});
  std::shared_ptr<const std::array<float, 4>> memory_ =
      std::make_shared<const std::array<float, 4>>(std::array<float, 4>{1, 2, 3, 4});
  const std::array<const std::byte*, 1> places_ = {std::as_bytes(std::span(*memory_)).data()};
  const std::shared_ptr<store::Ledger> ledger_ = std::make_shared<store::Ledger>(1);
  const std::shared_ptr<store::Slot> slot_ = std::make_shared<store::Slot>(
      store::SlotName{.storage = StorageId(1), .session = SessionId(1), .bytes = 16}, ledger_);
  std::shared_ptr<device::Buffer> original_;
  TaskEnvironment environment_;
  uint64_t gangs_ = 0;
};

TEST_F(BorrowedMemoryTest, ContentsAreCopiedAndTheOriginalIsDropped) {
  const std::weak_ptr<device::Buffer> original = std::exchange(original_, nullptr);
  const std::array<float, 4> values = *memory_;
  EXPECT_FALSE(original.expired()) << "only one gang has read it";
  Read();
  EXPECT_TRUE(original.expired());
  EXPECT_EQ(memory_.use_count(), 1);
  std::array<float, 4> read{};
  absl::Status copied = absl::UnknownError("not yet");
  buffer()->CopyToHost(read.data(), sizeof(read), [&](absl::Status status) { copied = status; });
  ASSERT_TRUE(copied.ok()) << copied;
  EXPECT_EQ(read, values);
  EXPECT_EQ(environment_.staging->used(), 0u);
  EXPECT_EQ(ledger_->Total().current, 16u);
}

TEST_F(BorrowedMemoryTest, TheCopyWaitsForRoom) {
  auto all = environment_.staging->Take(SessionId(2), 48, StagingMemory::Order::kIfRoom);
  auto more = environment_.staging->Take(SessionId(3), 16, StagingMemory::Order::kIfRoom);
  ASSERT_TRUE(all.ok() && more.ok());
  Read();
  EXPECT_EQ(buffer(), original_);
  more->Reset();
  Read();
  EXPECT_NE(buffer(), original_);
}

TEST_F(BorrowedMemoryTest, OtherContentsStay) {
  const std::array<const std::byte*, 1> elsewhere = {places_[0] + 1};
  MoveToHeap(environment_, slot_, elsewhere, Ordinal(9));
  EXPECT_EQ(buffer(), original_);
  memory_.reset();
  Read();
  EXPECT_EQ(buffer(), original_) << "the runtime had let the memory go";
}

}  // namespace
}  // namespace gangway::worker
