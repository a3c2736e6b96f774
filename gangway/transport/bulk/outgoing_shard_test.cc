// Tests of outgoing_shard.h.
#include "gangway/transport/bulk/outgoing_shard.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gangway/transport/bulk/incoming_shard.h"

namespace gangway::transport {
namespace {

using Way = OutgoingShard::Way;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::shared_ptr<std::byte> At(std::string& room) {
  return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(room.data())};
}

// All steps, each asked for twice, as after a link that took no more. What is sent is what a receiver takes.
std::vector<OutgoingShard::Step> Steps(OutgoingShard& shard, size_t bytes_max) {
  std::vector<OutgoingShard::Step> steps;
  IncomingShard incoming;
  while (!shard.done()) {
    steps.push_back(shard.Next(bytes_max));
    EXPECT_EQ(shard.Next(bytes_max).piece.offset, steps.back().piece.offset);
    if (steps.back().way == Way::kBytes) {
      EXPECT_TRUE(incoming.Take(steps.back().piece).ok());
    }
    shard.Advance(steps.back());
  }
  if (steps.back().way == Way::kBytes) {
    EXPECT_TRUE(incoming.complete());
  }
  EXPECT_EQ(shard.offset(), shard.size());
  return steps;
}

TEST(OutgoingShard, LeavesInPiecesOfABoundedSize) {
  const std::string text = "abcdefgh";
  for (size_t most = 1; most <= 9; ++most) {
    OutgoingShard shard(Bytes(text));
    EXPECT_FALSE(shard.begun());
    std::string sent;
    for (const auto& step : Steps(shard, most)) {
      EXPECT_EQ(step.way, Way::kBytes);
      EXPECT_EQ(step.piece.offset, sent.size());
      EXPECT_EQ(step.piece.total, sent.empty() ? 8u : 0u);
      EXPECT_EQ(step.piece.size, step.bytes.size());
      EXPECT_LE(step.bytes.size(), most);
      sent += Text(step.bytes);
      EXPECT_EQ(step.piece.last, sent.size() == text.size());
    }
    EXPECT_EQ(sent, text);
    EXPECT_TRUE(shard.begun());
  }
}

TEST(OutgoingShard, AnEmptyOneIsOneLastPiece) {
  OutgoingShard shard;
  const auto steps = Steps(shard, 4);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_TRUE(steps[0].way == Way::kBytes && steps[0].piece.last && steps[0].bytes.empty());
}

TEST(OutgoingShard, IsWrittenIntoMemoryOfTheOtherEndInPieces) {
  const std::string text = "abcdefgh";
  std::string room(8, '.');
  OutgoingShard shard(Bytes(text));
  shard.WriteInto(At(room));
  EXPECT_EQ(shard.Next(5).way, Way::kWritten);
  EXPECT_EQ(room, "abcde...");
  const auto steps = Steps(shard, 5);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].way, Way::kPlaced);
  EXPECT_TRUE(steps[1].piece.last);
  EXPECT_EQ(room, text);
}

TEST(OutgoingShard, BytesThatAreInPlaceStayThere) {
  std::string room = "abcdefgh";
  OutgoingShard shard(Bytes(room));
  shard.WriteInto(At(room));
  EXPECT_EQ(Steps(shard, 8).back().way, Way::kPlaced);
  OutgoingShard placed = OutgoingShard::Placed(1000);
  const auto steps = Steps(placed, 8);
  ASSERT_EQ(steps.size(), 1u) << "there is nothing to write";
  EXPECT_EQ(steps[0].way, Way::kPlaced);
  EXPECT_EQ(steps[0].piece.size, 1000u);
}

TEST(OutgoingShard, GoesOverTheLinkWhenItsPlaceIsLost) {
  const std::string text = "abcdefgh";
  std::string room(8, '.');
  OutgoingShard shard(Bytes(text));
  shard.WriteInto(At(room));
  shard.WriteInto(nullptr);
  EXPECT_EQ(Steps(shard, 8).back().way, Way::kBytes);
  EXPECT_EQ(room, "........");
}

TEST(OutgoingShard, IsLentWhole) {
  auto pool = SharedPool::Make({.bytes_max = size_t{64} << 20, .writable = true});
  std::shared_ptr<SharedBlock> block = pool->Allocate(1000);
  OutgoingShard shard(block->bytes());
  shard.Lend(block);
  const auto steps = Steps(shard, 8);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].way, Way::kLent);
  EXPECT_EQ(shard.block(), block);
  OutgoingShard sent(block->bytes());
  sent.Lend(block);
  sent.Lend(nullptr);
  EXPECT_EQ(sent.Next(8).way, Way::kBytes);
}

TEST(OutgoingShard, AFailureIsItsOnlyStep) {
  wire::Failure why;
  why.set_code(13);
  why.set_message("its worker died");
  OutgoingShard shard = OutgoingShard::Failed(why);
  const auto steps = Steps(shard, 8);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].way, Way::kFailed);
  EXPECT_TRUE(steps[0].piece.last);
  EXPECT_EQ(shard.failure().message(), "its worker died");
}

}  // namespace
}  // namespace gangway::transport
