// Tests of host_buffers.h.
#include "gangway/frontdoor/ifrt/host_buffers.h"

#include <cstring>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/base/clock.h"

namespace gangway::ifrt {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

HostBytesRef Bytes(HostBuffers& buffers, std::string_view text) {
  std::shared_ptr<HostBytes> bytes = *buffers.TryAllocate(text.size());
  std::memcpy(bytes->Make(), text.data(), text.size());
  return bytes;
}

// What a Lookup finds at once.
absl::StatusOr<std::string> Found(HostBuffers& buffers, uint64_t handle) {
  absl::StatusOr<std::string> found = absl::UnavailableError("it waits");
  buffers.Lookup(handle, [&found](absl::StatusOr<HostBytesRef> bytes) {
    if (bytes.ok()) {
      found = std::string((*bytes)->view());
    } else {
      found = bytes.status();
    }
  });
  return found;
}

// A Lookup that may wait, and its outcome.
std::future<absl::Status> Waiting(HostBuffers& buffers, uint64_t handle) {
  auto ended = std::make_shared<std::promise<absl::Status>>();
  buffers.Lookup(handle,
                 [ended](absl::StatusOr<HostBytesRef> bytes) { ended->set_value(bytes.status()); });
  return ended->get_future();
}

bool Ended(const std::future<absl::Status>& lookup) {
  return lookup.wait_for(milliseconds(0)) == std::future_status::ready;
}

TEST(HostBuffers, TM2_AllSessionsShareOneTotal) {
  auto all = std::make_shared<MemoryBudget>("the head", "--head-memory", 100);
  HostBuffers first(75, milliseconds(10), all), second(75, milliseconds(10), all);
  auto held = first.TryAllocate(75);
  ASSERT_TRUE(held.ok());
  const absl::Status own = first.TryAllocate(1).status();
  EXPECT_EQ(own.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(own.message()), HasSubstr("75 bytes of host buffers of this session"));
  const absl::Status total = second.Allocate(26).status();
  EXPECT_EQ(total.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(total.message()), HasSubstr("75 of uploads and downloads"));
  EXPECT_EQ(second.bytes(), 0u) << "what was refused is not held";
  EXPECT_TRUE(second.TryAllocate(25).ok());
  held->reset();
  EXPECT_EQ(all->use().total(), 0u);
}

TEST(HostBuffers, ALookupWaitsForWhatIsAnnounced) {
  HostBuffers buffers(100, milliseconds(1000));
  ASSERT_TRUE(buffers.Announce(1));
  EXPECT_FALSE(buffers.Announce(1)) << "in use";
  std::future<absl::Status> first = Waiting(buffers, 1);
  EXPECT_FALSE(Ended(first));
  EXPECT_EQ(Found(buffers, 1).status().code(), absl::StatusCode::kNotFound) << "one may wait";
  buffers.Fulfil(1, Bytes(buffers, "made"));
  ASSERT_TRUE(Ended(first));
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(*Found(buffers, 1), "made") << "until it is erased";
  EXPECT_FALSE(buffers.Announce(1)) << "in use";
  buffers.Erase(1);
  EXPECT_EQ(buffers.bytes(), 0u);

  ASSERT_TRUE(buffers.Announce(2));
  buffers.Fulfil(2, absl::DataLossError("its worker died"));
  EXPECT_EQ(Found(buffers, 2).status().message(), "its worker died");
}

TEST(HostBuffers, WhatIsErasedOrClosedEndsItsLookup) {
  HostBuffers buffers(100, milliseconds(1000));
  ASSERT_TRUE(buffers.Announce(1));
  std::future<absl::Status> erased = Waiting(buffers, 1);
  buffers.Erase(1);
  ASSERT_TRUE(Ended(erased));
  EXPECT_EQ(erased.get().code(), absl::StatusCode::kNotFound);
  buffers.Fulfil(1, Bytes(buffers, "late"));
  EXPECT_EQ(buffers.bytes(), 0u) << "dropped";

  ASSERT_TRUE(buffers.Announce(2));
  std::future<absl::Status> closed = Waiting(buffers, 2);
  buffers.Close();
  ASSERT_TRUE(Ended(closed));
  EXPECT_EQ(closed.get().code(), absl::StatusCode::kCancelled);
  buffers.Fulfil(2, Bytes(buffers, "late"));
  EXPECT_FALSE(buffers.Announce(3));
  EXPECT_EQ(buffers.bytes(), 0u);
}

TEST(HostBuffers, AnnouncementsAreBounded_TM_2) {
  HostBuffers buffers(100, milliseconds(1000));
  for (uint64_t handle = 0; handle < kAnnouncedMax; ++handle) ASSERT_TRUE(buffers.Announce(handle));
  EXPECT_FALSE(buffers.Announce(kAnnouncedMax));
  buffers.Fulfil(0, Bytes(buffers, "x"));
  EXPECT_TRUE(buffers.Announce(kAnnouncedMax));
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
  EXPECT_EQ(Found(buffers, 1).status().code(), absl::StatusCode::kNotFound);
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
  buffers.Expire(Clock::now());
  EXPECT_TRUE(late.ok());
  buffers.Expire(Clock::now() + std::chrono::seconds(2));
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
