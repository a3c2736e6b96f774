// Tables that do not fit together are refused by name; messages cover all operands, within their limit.
#include "gangway/collective/execution/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {
namespace {

using ::testing::HasSubstr;
using xla::Collective;

xla::CollectiveTable Table(Collective::Kind kind) {
  xla::CollectiveTable table;
  table.set_replica_count(2);
  table.set_partition_count(2);
  for (const std::vector<uint32_t>& positions : {std::vector<uint32_t>{0, 1}, {2, 3}}) {
    if (table.groups().empty()) table.add_groups();
    table.mutable_groups(0)->add_groups()->mutable_positions()->Add(positions.begin(),
                                                                    positions.end());
  }
  Collective& collective = *table.add_collectives();
  collective.set_kind(kind);
  collective.set_reduction(Collective::SUM);
  collective.set_name("all-reduce.7");
  collective.set_source("train.py:3");
  Collective::Operand& operand = *collective.add_operands();
  operand.set_element_type(11);
  operand.set_outer(1);
  operand.set_piece_bytes(64);
  return table;
}

using Break = std::function<void(xla::CollectiveTable&)>;

void ExpectRefused(Collective::Kind kind, const Break& break_it, absl::StatusCode code,
                   const std::string& why) {
  xla::CollectiveTable table = Table(kind);
  break_it(table);
  auto plan = Plan::Make(table);
  EXPECT_EQ(plan.status().code(), code) << plan.status();
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(why));
}

TEST(PlanTest, RefusesWhatDoesNotFit) {
  const auto wrong = absl::StatusCode::kInvalidArgument;
  const auto unknown = absl::StatusCode::kUnimplemented;
  auto one = [](xla::CollectiveTable& t) -> Collective& { return *t.mutable_collectives(0); };
  const auto reduce = Collective::ALL_REDUCE;
  ExpectRefused(reduce, [](auto& t) { t.set_replica_count(0); }, wrong, "0 positions");
  ExpectRefused(
      reduce,
      [](auto& t) {
        t.set_replica_count(1u << 31);
        t.set_partition_count(1u << 31);
      },
      wrong, "positions");
  ExpectRefused(
      reduce, [&](auto& t) { one(t).set_groups(1); }, wrong,
      "all-reduce.7 at train.py:3: its groups are not in the table");
  ExpectRefused(
      reduce, [](auto& t) { t.mutable_groups(0)->mutable_groups(1)->set_positions(0, 1); }, wrong,
      "position 1 is in two groups");
  ExpectRefused(
      reduce, [](auto& t) { t.mutable_groups(0)->mutable_groups(1)->set_positions(0, 4); }, wrong,
      "position 4 of a group does not exist");
  ExpectRefused(
      reduce,
      [](auto& t) { t.mutable_groups(0)->mutable_groups(1)->mutable_positions()->RemoveLast(); },
      wrong, "in none of its groups");
  ExpectRefused(reduce, [&](auto& t) { one(t).clear_operands(); }, wrong, "no operands");
  ExpectRefused(
      reduce, [&](auto& t) { one(t).mutable_operands(0)->set_element_type(20); }, unknown,
      "f8e4m3fn");
  ExpectRefused(reduce, [&](auto& t) { one(t).clear_reduction(); }, unknown, "f32");
  ExpectRefused(
      reduce, [&](auto& t) { one(t).mutable_operands(0)->set_piece_bytes(63); }, wrong,
      "whole elements");
  ExpectRefused(
      reduce,
      [&](auto& t) {
        one(t).mutable_operands(0)->set_piece_bytes(uint64_t{1} << 40);
        one(t).mutable_operands(0)->set_outer(uint64_t{1} << 40);
      },
      absl::StatusCode::kResourceExhausted, "too large");
  ExpectRefused(
      Collective::ALL_GATHER,
      [](auto& t) {
        t.mutable_groups(0)->mutable_groups(1)->mutable_positions()->RemoveLast();
        t.mutable_groups(0)->mutable_groups(0)->add_positions(3);
      },
      wrong, "not of one size");
  ExpectRefused(Collective::ALL_TO_ALL_TUPLE, [](auto&) {}, wrong, "an operand for each member");
  ExpectRefused(
      Collective::ALL_TO_ALL_TUPLE,
      [&](auto& t) {
        *one(t).add_operands() = one(t).operands(0);
        one(t).mutable_operands(1)->set_piece_bytes(32);
      },
      wrong, "not of one size");
  const auto permute = Collective::PERMUTE;
  auto pair = [&](xla::CollectiveTable& t, uint32_t source, uint32_t target) {
    one(t).add_sources(source);
    one(t).add_targets(target);
  };
  ExpectRefused(permute, [&](auto& t) { pair(t, 4, 0); }, wrong, "does not exist");
  ExpectRefused(permute, [&](auto& t) { one(t).add_sources(0); }, wrong, "not whole");
  ExpectRefused(
      permute,
      [&](auto& t) {
        pair(t, 0, 1);
        pair(t, 2, 1);
      },
      wrong, "position 1 has two sources");
  ExpectRefused(
      permute,
      [&](auto& t) {
        pair(t, 0, 1);
        pair(t, 0, 2);
      },
      wrong, "position 0 has two targets");
  ExpectRefused(Collective::KIND_UNSPECIFIED, [](auto&) {}, wrong, "not known");
}

void AddOperand(Collective& collective, int32_t type, uint64_t outer, uint64_t piece_bytes) {
  Collective::Operand& operand = *collective.add_operands();
  operand.set_element_type(type);
  operand.set_outer(outer);
  operand.set_piece_bytes(piece_bytes);
}

// Rows of 40 bytes; `entries` in each list.
void MakeRagged(xla::CollectiveTable& table, uint64_t rows, uint64_t entries) {
  Collective& ragged = *table.mutable_collectives(0);
  ragged.clear_operands();
  AddOperand(ragged, xla::TYPE_F32, rows, 40);
  AddOperand(ragged, xla::TYPE_F32, 7, 40);
  for (int i = 0; i < 4; ++i) AddOperand(ragged, xla::TYPE_S64, entries, 8);
}

TEST(PlanTest, ARaggedExchangeSendsItsListsInBlocksBeforeItsRows) {
  for (const auto& [rows, entries] :
       {std::pair<uint64_t, uint64_t>{100, 4}, {0, 2}, {20'000, 6}, {20'000, 100'000}}) {
    xla::CollectiveTable table = Table(Collective::RAGGED_ALL_TO_ALL);
    MakeRagged(table, rows, entries);
    auto plan = Plan::Make(table);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlannedCollective& planned = (*plan)->at(0);
    const size_t list = entries * 8;
    EXPECT_EQ(planned.operand_bytes, (std::vector<size_t>{rows * 40, 280, list, list, list, list}));
    EXPECT_EQ(planned.result_bytes, std::vector<size_t>{280});
    EXPECT_EQ(planned.units, (std::vector<size_t>{rows * 40, 0, list / 2, list / 2, list / 2, 0}));
    std::vector<size_t> covered(6);
    for (const Message& message : planned.messages) {
      size_t end = 0;
      for (const Segment& segment : message.segments) {
        EXPECT_EQ(segment.begin, covered[segment.operand]);
        EXPECT_GE(segment.offset, end);
        if (segment.operand == kRaggedRows) {
          EXPECT_EQ(covered[4], list / 2) << "lists come first";
        }
        covered[segment.operand] += segment.bytes;
        end = segment.offset + segment.stride * (segment.operand == kRaggedRows ? 1 : 2);
      }
      EXPECT_LE(end, message.bytes);
      EXPECT_LE(message.bytes, kMessageBytes);
      EXPECT_FALSE(message.in_parts);
    }
    EXPECT_EQ(covered, planned.units);
    if (rows == 100) {
      EXPECT_EQ(planned.messages.size(), 1u);
    }
  }
}

TEST(PlanTest, ARaggedExchangeThatDoesNotFitIsRefused) {
  const auto wrong = absl::StatusCode::kInvalidArgument;
  const auto expect = [](absl::StatusCode code, const std::string& why,
                         const std::function<void(Collective&)>& damage) {
    ExpectRefused(
        Collective::RAGGED_ALL_TO_ALL,
        [&](auto& t) {
          MakeRagged(t, 10, 4);
          damage(*t.mutable_collectives(0));
        },
        code, why);
  };
  expect(wrong, "six operands", [](auto& it) { it.mutable_operands()->RemoveLast(); });
  expect(wrong, "differ in size", [](auto& it) { it.mutable_operands(1)->set_piece_bytes(41); });
  expect(wrong, "not one number", [](auto& it) { it.mutable_operands(3)->set_piece_bytes(4); });
  expect(wrong, "not of one length", [](auto& it) { it.mutable_operands(5)->set_outer(6); });
  expect(absl::StatusCode::kUnimplemented, "type f32",
         [](auto& it) { it.mutable_operands(2)->set_element_type(xla::TYPE_F32); });
  for (const uint64_t entries : {0u, 3u}) {
    expect(wrong, absl::StrCat(entries, " entries for 2 members"), [&](auto& it) {
      for (int i = 2; i < 6; ++i) it.mutable_operands(i)->set_outer(entries);
    });
  }
  expect(absl::StatusCode::kResourceExhausted, "too large",
         [](auto& it) { it.mutable_operands(0)->set_outer(uint64_t{1} << 60); });
  expect(absl::StatusCode::kResourceExhausted, "too large",
         [](auto& it) { it.mutable_operands(1)->set_outer(uint64_t{1} << 60); });
}

TEST(PlanTest, MessagesCoverAllOperandsWithinTheirLimit) {
  for (auto kind : {Collective::ALL_REDUCE, Collective::ALL_GATHER, Collective::REDUCE_SCATTER,
                    Collective::ALL_TO_ALL}) {
    xla::CollectiveTable table = Table(kind);
    Collective& collective = *table.mutable_collectives(0);
    for (uint64_t floats : {1u, 0u, 3u, 4000u, 5000u, 1u << 17, 7u, 65'535u}) {
      Collective::Operand& operand = *collective.add_operands();
      operand.set_element_type(11);
      operand.set_outer(floats == 0 ? 0 : 3);
      operand.set_piece_bytes(floats * 4);
    }
    auto plan = Plan::Make(table);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlannedCollective& planned = (*plan)->at(0);
    const bool blocks = kind != Collective::ALL_REDUCE && kind != Collective::ALL_GATHER;
    std::vector<size_t> covered(planned.units.size());
    for (const Message& message : planned.messages) {
      EXPECT_LE(message.bytes, kMessageBytes);
      size_t end = 0;
      for (const Segment& segment : message.segments) {
        EXPECT_EQ(segment.begin, covered[segment.operand]);
        EXPECT_GE(segment.offset, end);
        EXPECT_EQ(segment.offset % kSegmentAlignment, 0u);
        EXPECT_GE(segment.stride, segment.bytes);
        EXPECT_EQ(message.in_parts,
                  kind == Collective::ALL_REDUCE && planned.units[segment.operand] > kFlatBytes);
        covered[segment.operand] += segment.bytes;
        end = segment.offset + segment.stride * (blocks ? 2 : 1);
      }
      EXPECT_LE(end, message.bytes);
      EXPECT_TRUE(!message.in_parts || message.segments.size() == 1);
    }
    EXPECT_EQ(covered, planned.units);
  }
}

TEST(PlanTest, AGroupTooLargeForAMessageIsRefused) {
  xla::CollectiveTable table = Table(Collective::ALL_TO_ALL);
  table.set_partition_count(4096);
  table.set_replica_count(2);
  table.mutable_groups(0)->clear_groups();
  auto& group = *table.mutable_groups(0)->add_groups();
  for (uint32_t i = 0; i < 8192; ++i) group.add_positions(i);
  EXPECT_TRUE(absl::IsUnimplemented(Plan::Make(table).status()));
}

// A table of a few bytes must not make a worker allocate all memory that there is.
TEST(PlanTest, TheMemoryOfAPlanHasALimit) {
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  auto one = [](xla::CollectiveTable& t) -> Collective& { return *t.mutable_collectives(0); };
  ExpectRefused(
      Collective::ALL_GATHER,
      [&](auto& t) { one(t).mutable_operands(0)->set_piece_bytes(uint64_t{1} << 40); }, exhausted,
      "all-reduce.7 at train.py:3: its operands are too large");
  ExpectRefused(
      Collective::ALL_GATHER,
      [&](auto& t) {
        one(t).mutable_operands(0)->set_piece_bytes(kMessagesMax / 2 * kMessageBytes);
        *t.add_collectives() = one(t);
        *t.add_collectives() = one(t);
      },
      exhausted, "its operands are too large");
  ExpectRefused(
      Collective::PERMUTE, [](auto& t) { t.set_replica_count(1u << 14); },
      absl::StatusCode::kInvalidArgument, "32768 positions");
  ExpectRefused(
      Collective::PERMUTE,
      [&](auto& t) {
        t.set_replica_count(1u << 13);
        for (uint32_t i = 0; i < kRolesMax / kPositionsMax; ++i) {
          Collective& other = *t.add_collectives() = one(t);
          other.add_sources(i);
          other.add_targets(0);
        }
      },
      exhausted, "128 different sets of groups of 16384 positions");
}

TEST(PlanTest, CollectivesWithTheSameGroupsShareTheirRoles) {
  xla::CollectiveTable table = Table(Collective::ALL_REDUCE);
  *table.add_collectives() = table.collectives(0);
  table.mutable_collectives(1)->set_kind(Collective::ALL_GATHER);
  *table.add_collectives() = table.collectives(0);
  table.mutable_collectives(2)->set_kind(Collective::BROADCAST);
  auto plan = Plan::Make(table);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(&(*plan)->at(0).roles[0], &(*plan)->at(1).roles[0]);
  EXPECT_NE(&(*plan)->at(0).roles[0], &(*plan)->at(2).roles[0]) << "one sends in a broadcast";
  EXPECT_EQ((*plan)->at(2).roles[1].readers, nullptr);
}

TEST(PlanTest, WhatIsLoadedIsForItsDevices) {
  xla::LoweredExecutable lowered;
  *lowered.mutable_table() = Table(Collective::ALL_REDUCE);
  lowered.set_executable("code");
  auto unpacked = Unpack(lowered.SerializeAsString(), 4);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(unpacked->executable, "code");
  EXPECT_EQ(unpacked->plan->size(), 1u);
  EXPECT_THAT(std::string(Unpack(lowered.SerializeAsString(), 8).status().message()),
              HasSubstr("of 4 positions, for 8 devices"));
  lowered.mutable_table()->clear_collectives();
  unpacked = Unpack(lowered.SerializeAsString(), 8);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(unpacked->plan, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(Unpack("\xff", 4).status()));
}

}  // namespace
}  // namespace gangway::collective
