// Collectives of groups that are too large for each member to read all others.
#include "gangway/collective/execution/relay.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>
#include <vector>

#include "gangway/collective/execution/member_test_util.h"

namespace gangway::collective {
namespace {

using xla::Collective;

constexpr uint32_t kMembers = kDirectMembersMax + 6;  // so the last step takes fewer blocks

std::vector<uint32_t> Shuffled() {
  std::vector<uint32_t> positions(kMembers);
  for (uint32_t i = 0; i < kMembers; ++i) positions[i] = i * 3 % kMembers;
  return positions;
}

xla::CollectiveTable SmallOnes() {
  xla::CollectiveTable table = Table(kMembers, {Shuffled()});
  Add(table, Collective::ALL_REDUCE, {{1, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, 3}, {2, 100}, {0, 0}, {1, 17}});
  Add(table, Collective::ALL_GATHER, {{1, 1}});
  Add(table, Collective::ALL_GATHER, {{3, 5}, {1, 33}});
  const auto plan = *Plan::Make(table);
  for (size_t i = 0; i < plan->size(); ++i) EXPECT_EQ(plan->at(i).route, Route::kRelayed);
  return table;
}

// Whatever the members do not all need, or cannot hold in one message, goes directly.
TEST(Relay, IsForSmallOperandsOfLargeGroups) {
  const auto route = [](uint32_t members, Collective::Kind kind, uint64_t floats) {
    std::vector<uint32_t> all(members);
    std::iota(all.begin(), all.end(), 0);
    xla::CollectiveTable table = Table(members, {all});
    Add(table, kind, {{1, floats}});
    return (*Plan::Make(table))->at(0).route;
  };
  const uint32_t large = kDirectMembersMax + 1;
  const uint64_t most = kMessageBytes / large / kSegmentAlignment * kSegmentAlignment / 4;
  for (const auto kind : {Collective::ALL_REDUCE, Collective::ALL_GATHER}) {
    EXPECT_EQ(route(large - 1, kind, 1), Route::kDirect);
    EXPECT_EQ(route(large, kind, 1), Route::kRelayed);
    EXPECT_EQ(route(large, kind, most), Route::kRelayed);
    EXPECT_EQ(route(large, kind, most + 1), Route::kDirect);
  }
  EXPECT_EQ(route(large, Collective::ALL_REDUCE, kFlatBytes / 4 + 1), Route::kDirect);
  EXPECT_EQ(route(large, Collective::REDUCE_SCATTER, 1), Route::kDirect);
  EXPECT_EQ(route(large, Collective::ALL_TO_ALL, 1), Route::kDirect);
  EXPECT_EQ(route(4096, Collective::ALL_REDUCE, 1), Route::kRelayed);
}

TEST(Relay, GivesWhatTheDescriptionSays) {
  for (const Sight sight : {Sight::kMapped, Sight::kMirrored}) {
    Host host(5, kMembers / 5, sight);
    ExpectDescribed(host, SmallOnes(), 2);
  }
}

// Next to collectives whose members all meet, with messages in the same slots.
TEST(Relay, MixesWithOtherWays) {
  xla::CollectiveTable table = SmallOnes();
  Add(table, Collective::ALL_REDUCE, {{1, 5'000}});
  Add(table, Collective::ALL_REDUCE, {{1, 1}});
  Host host(5, kMembers / 5, Sight::kMirrored);
  ExpectDescribed(host, table, 1);
}

TEST(Relay, MeetsFewMembers) {
  Host host(kMembers, 1, Sight::kMirrored);
  xla::CollectiveTable table = Table(kMembers, {Shuffled()});
  Add(table, Collective::ALL_REDUCE, {{1, 1}});
  ExpectDescribed(host, table, 1);  // two launches
  EXPECT_EQ(host.carried_messages(), 2 * kMembers * 7);
}

std::vector<uint32_t> MetBy(const Plan& plan, const std::vector<uint32_t>& positions) {
  std::vector<uint32_t> met;
  const std::vector<bool> all = plan.Met(positions);
  for (uint32_t i = 0; i < all.size(); ++i)
    if (all[i]) met.push_back(i);
  return met;
}

TEST(Plan, KnowsWhomAPositionMeets) {
  std::vector<uint32_t> all(kMembers);
  std::iota(all.begin(), all.end(), 0);
  xla::CollectiveTable table = Table(kMembers, {all});
  Add(table, Collective::ALL_REDUCE, {{1, 1}});
  EXPECT_EQ(MetBy(**Plan::Make(table), {0}),
            (std::vector<uint32_t>{1, 2, 4, 6, 8, 16, 32, 38, 54, 62, 64, 66, 68, 69}));
  Collective& permute = Add(table, Collective::PERMUTE, {{1, 1}});
  permute.add_sources(0);
  permute.add_targets(50);
  permute.add_sources(51);
  permute.add_targets(0);
  const auto plan = *Plan::Make(table);
  EXPECT_EQ(MetBy(*plan, {0}),
            (std::vector<uint32_t>{1, 2, 4, 6, 8, 16, 32, 38, 50, 51, 54, 62, 64, 66, 68, 69}));
  EXPECT_TRUE(plan->Met(std::vector<uint32_t>{7, 50})[0]) << "as the other one";
  Add(table, Collective::ALL_REDUCE, {{1, 5'000}});
  EXPECT_EQ(MetBy(**Plan::Make(table), {0}), all);
}

TEST(Relay, EndsWithTheReasonOfAnAbort) {
  Host host(5, kMembers / 5, Sight::kMapped);
  const auto plan = *Plan::Make(SmallOnes());
  const auto launches = host.Begin(plan);
  const auto statuses = host.Run(launches, [&](Member& member, uint32_t position) -> absl::Status {
    if (position == 40) {  // as its worker's scheduler would do
      for (const auto& launch : launches) launch->Abort(absl::AbortedError("position 40"));
      return absl::AbortedError("position 40");
    }
    Arrays results = Empty(plan->at(0));
    return RunOnce(member, 0, Inputs(plan->at(0), position), results);
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status.message(), "position 40");
  ExpectDescribed(host, SmallOnes(), 1);
}

}  // namespace
}  // namespace gangway::collective
