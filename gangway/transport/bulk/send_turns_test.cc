// Tests of send_turns.h.
#include "gangway/transport/bulk/send_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gangway::transport {
namespace {

using ::testing::ElementsAre;

constexpr SessionId kOne(1), kTwo(2);

// Sends everything; an item is its name and the number of its pieces left, such as "a3".
std::string Order(SendTurns<std::string> turns) {
  std::string order;
  while (auto turn = turns.Take()) {
    order += turn->item[0];
    if (--turn->item[1] > '0') turns.Again(*std::move(turn));
  }
  EXPECT_TRUE(turns.empty());
  return order;
}

TEST(SendTurns, SessionsAlternateAndEachKeepsItsOrder) {
  SendTurns<std::string> turns;
  for (const char* item : {"a1", "b1", "c1"}) turns.Push(kOne, ShardSize::kLarge, item);
  turns.Push(kTwo, ShardSize::kLarge, "x1");
  EXPECT_EQ(Order(turns), "axbc");
}

TEST(SendTurns, ASessionOfManyPiecesDelaysAnotherByOne) {
  SendTurns<std::string> turns;
  turns.Push(kOne, ShardSize::kLarge, "a4");
  turns.Push(kOne, ShardSize::kLarge, "b4");
  turns.Push(kTwo, ShardSize::kLarge, "x2");
  EXPECT_EQ(Order(turns), "axbxababab");
}

TEST(SendTurns, SmallAndLargeAlternate) {
  SendTurns<std::string> turns;
  turns.Push(kOne, ShardSize::kLarge, "L5");
  for (const char* item : {"a1", "b1", "c1"}) turns.Push(kOne, ShardSize::kSmall, item);
  EXPECT_EQ(Order(turns), "aLbLcLLL");
}

TEST(SendTurns, OnlyTheFirstFewLargeOnesTakeTurns) {
  SendTurns<std::string> turns(/*interleaved=*/2);
  for (const char* item : {"a2", "b3", "c2", "d1"}) turns.Push(kOne, ShardSize::kLarge, item);
  EXPECT_EQ(Order(turns), "ababcbcd");
}

TEST(SendTurns, WhatTheLinkDidNotTakeIsNext) {
  SendTurns<std::string> turns;
  turns.Push(kOne, ShardSize::kLarge, "L1");
  turns.Push(kOne, ShardSize::kSmall, "a1");
  turns.Push(kOne, ShardSize::kSmall, "b1");
  turns.Push(kTwo, ShardSize::kSmall, "x1");
  for (int i = 0; i < 3; ++i) turns.Undo(*turns.Take());
  EXPECT_EQ(turns.size(), 4u);
  EXPECT_EQ(Order(turns), "axLb");
}

TEST(SendTurns, WhatMayNotIsPassedOver) {
  SendTurns<std::string> turns;
  turns.Push(kOne, ShardSize::kLarge, "L1");
  turns.Push(kOne, ShardSize::kSmall, "a1");
  turns.Push(kTwo, ShardSize::kLarge, "x1");
  auto is_x = [](SessionId session, const std::string&) { return session == kTwo; };
  auto is_large = [](SessionId, const std::string& item) { return item != "a1"; };
  EXPECT_EQ(turns.Take(is_x)->item, "x1");
  EXPECT_EQ(turns.Take(is_x), std::nullopt);
  EXPECT_EQ(turns.Take(is_large)->item, "L1") << "before the small one";
  EXPECT_EQ(turns.size(ShardSize::kSmall), 1u);
  EXPECT_EQ(turns.Take()->item, "a1");
}

TEST(SendTurns, SomeAreTakenOutOfTurn) {
  SendTurns<std::string> turns;
  for (const char* item : {"a1", "b1"}) turns.Push(kOne, ShardSize::kLarge, item);
  turns.Push(kTwo, ShardSize::kSmall, "x1");
  EXPECT_THAT(turns.TakeIf([](const std::string& item) { return item != "b1"; }),
              ElementsAre("a1", "x1"));
  turns.ForEach([](std::string& item) { item[0] = 'B'; });
  EXPECT_EQ(Order(turns), "B");
}

}  // namespace
}  // namespace gangway::transport
