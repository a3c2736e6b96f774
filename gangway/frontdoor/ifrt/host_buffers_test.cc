// Tests of host_buffers.h.
#include "gangway/frontdoor/ifrt/host_buffers.h"

#include <cstring>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::ifrt {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

HostBytesRef Bytes(HostBuffers& buffers, std::string_view text) {
  std::shared_ptr<HostBytes> bytes = *buffers.TryAllocate(text.size());
  std::memcpy(bytes->Make(), text.data(), text.size());
  return bytes;
}

TEST(HostBuffers, JoinsInBothOrders) {
  HostBuffers buffers(100, milliseconds(1000));
  std::vector<std::string> seen;
  const auto note = [&](absl::StatusOr<HostBytesRef> bytes) {
    seen.emplace_back((*bytes)->view());
  };
  ASSERT_TRUE(buffers.Put(1, Bytes(buffers, "first")).ok());
  buffers.Take(1, note);
  buffers.Take(2, note);
  EXPECT_EQ(seen.size(), 1u);
  ASSERT_TRUE(buffers.Put(2, Bytes(buffers, "second")).ok());
  EXPECT_THAT(seen, ::testing::ElementsAre("first", "second"));
  EXPECT_EQ(buffers.bytes(), 0u);
  EXPECT_EQ(buffers.Get(1).status().code(), absl::StatusCode::kNotFound);
}

TEST(HostBuffers, APlaceIsForWhatIsWaitedFor) {
  HostBuffers buffers(100, milliseconds(1000));
  const auto place = [] {
    std::shared_ptr<char[]> memory(new char[5]);
    return HostBuffers::HostPlace{std::shared_ptr<char>(memory, memory.get()), 5};
  };
  buffers.Place(1, place());
  EXPECT_EQ(buffers.TakePlace(1).memory, nullptr) << "no Take waits";
  buffers.Take(1, [](auto) {});
  EXPECT_EQ(buffers.TakePlace(1).memory, nullptr);
  buffers.Place(1, place());
  std::shared_ptr<HostBytes> bytes = *buffers.TryAllocate(5);
  bytes->Refer(buffers.TakePlace(1).memory);
  EXPECT_EQ(buffers.TakePlace(1).memory, nullptr) << "it has one writer";
  EXPECT_TRUE(buffers.Put(1, bytes).ok());
  EXPECT_EQ(buffers.TakePlace(1).memory, nullptr) << "forgotten with the handle";
}

TEST(HostBuffers, OB3_NobodyElsePutsWhileAPlaceIsWritten) {
  HostBuffers buffers(100, milliseconds(1000));
  absl::Status seen;
  buffers.Take(1, [&](absl::StatusOr<HostBytesRef> bytes) { seen = bytes.status(); });
  std::shared_ptr<char[]> memory(new char[5]);
  buffers.Place(1, {std::shared_ptr<char>(memory, memory.get()), 5});
  EXPECT_EQ(buffers.TakePlace(1).size, 5u);
  EXPECT_EQ(buffers.Put(1, Bytes(buffers, "other")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(seen.code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostBuffers, BytesOfOthersAreReferredToAndLetGo) {
  HostBuffers buffers(100, milliseconds(1000));
  auto memory = std::make_shared<std::string>("theirs");
  std::shared_ptr<HostBytes> bytes = *buffers.TryAllocate(6);
  bytes->Refer(std::shared_ptr<const char>(memory, memory->data()));
  EXPECT_EQ(bytes->view().data(), memory->data());
  EXPECT_EQ(bytes->view(), "theirs");
  EXPECT_EQ(memory.use_count(), 2);
  bytes.reset();
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(buffers.bytes(), 0u);
}

TEST(HostBuffers, RefusesDoubleUse) {
  HostBuffers buffers(100, milliseconds(1000));
  ASSERT_TRUE(buffers.Put(1, Bytes(buffers, "x")).ok());
  EXPECT_EQ(buffers.Put(1, Bytes(buffers, "y")).code(), absl::StatusCode::kInvalidArgument);
  buffers.Take(2, [](auto) {});
  absl::Status second;
  buffers.Take(2, [&](absl::StatusOr<HostBytesRef> bytes) { second = bytes.status(); });
  EXPECT_EQ(second.code(), absl::StatusCode::kInvalidArgument);
}

// TM-1: bytes that never arrive are reported, and only those.
TEST(HostBuffers, TM1_ExpiresWhatNeverComes) {
  HostBuffers buffers(100, milliseconds(1000));
  absl::Status late;
  bool came = false;
  buffers.Take(1, [&](absl::StatusOr<HostBytesRef> bytes) { late = bytes.status(); });
  buffers.Take(2, [&](absl::StatusOr<HostBytesRef> bytes) { came = bytes.ok(); });
  ASSERT_TRUE(buffers.Put(2, Bytes(buffers, "x")).ok());
  buffers.Expire(HostBuffers::Clock::now());
  EXPECT_TRUE(late.ok());
  buffers.Expire(HostBuffers::Clock::now() + std::chrono::seconds(2));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("host buffer 1 within 1000 ms"));
  EXPECT_TRUE(came);
}

// TM-2: a full budget delays an allocation, and rejects it at the deadline with the sizes.
TEST(HostBuffers, TM2_BudgetBounds) {
  HostBuffers buffers(100, milliseconds(50));
  auto held = *buffers.Allocate(80);
  EXPECT_EQ(buffers.Allocate(101).status().code(), absl::StatusCode::kResourceExhausted);
  absl::Status full = buffers.Allocate(30).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("holds 80 bytes"));
  HostBuffers patient(100, milliseconds(60000));
  auto first = *patient.Allocate(80);
  auto waits = std::async(std::launch::async, [&] { return patient.Allocate(30).status(); });
  first.reset();
  EXPECT_TRUE(waits.get().ok());
}

TEST(HostBuffers, CloseWaitsForRunningCallbacks) {
  HostBuffers buffers(100, milliseconds(1000));
  std::promise<void> entered, leave;
  std::atomic<bool> left = false;
  buffers.Take(1, [&](auto) {
    entered.set_value();
    leave.get_future().wait();
    left = true;
  });
  buffers.Take(2, [](auto) { ADD_FAILURE() << "called after Close"; });
  std::thread putter([&] { EXPECT_TRUE(buffers.Put(1, Bytes(buffers, "x")).ok()); });
  entered.get_future().wait();
  std::thread closer([&] {
    buffers.Close();
    EXPECT_TRUE(left);
  });
  leave.set_value();
  closer.join();
  putter.join();
  EXPECT_EQ(buffers.Put(2, Bytes(buffers, "x")).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace gangway::ifrt
