// Tests of member_waits.h.
#include "gangway/worker/service/launch/member_waits.h"

#include <gtest/gtest.h>

#include <chrono>

namespace gangway::worker {
namespace {

constexpr uint64_t kGang = 7;

// Of kGang, on `device`.
wire::GangMember MemberOn(uint32_t device) {
  wire::GangMember member;
  member.set_gang(kGang);
  member.set_device(device);
  member.set_stage(wire::GangMember::STAGE_PROGRAM);
  return member;
}

TEST(MemberWaitsTest, AMemberThatSleepsInACollectiveNamesTheOneThatItAwaits) {
  const Clock::time_point now{std::chrono::seconds(10)};
  std::vector<wire::GangMember> members = {MemberOn(0), MemberOn(1)};
  DescribeWaits({{1,
                  {.gang = kGang,
                   .collective = "all-reduce 3",
                   .peer = "island0/worker2",
                   .peer_device = 5,
                   .since = now - std::chrono::milliseconds(1500)}}},
                {}, now, members);
  EXPECT_EQ(members[0].stage(), wire::GangMember::STAGE_PROGRAM);
  EXPECT_EQ(members[1].stage(), wire::GangMember::STAGE_COLLECTIVE);
  EXPECT_EQ(members[1].for_ms(), 1500u);
  EXPECT_EQ(members[1].collective(), "all-reduce 3");
  EXPECT_EQ(members[1].awaited_worker(), "island0/worker2");
  EXPECT_EQ(members[1].awaited_device(), 5u);
}

TEST(MemberWaitsTest, AMemberThatCalledItsClientNamesIt) {
  std::vector<wire::GangMember> members = {MemberOn(0), MemberOn(1)};
  DescribeWaits({}, {{0, {.gang = Ordinal(kGang), .client = "train.py"}}}, {}, members);
  EXPECT_EQ(members[0].stage(), wire::GangMember::STAGE_CALLBACK);
  EXPECT_EQ(members[0].client(), "train.py");
  EXPECT_EQ(members[1].stage(), wire::GangMember::STAGE_PROGRAM);
}

// The device may have gone on to a later gang since the member was looked at.
TEST(MemberWaitsTest, TheWaitsOfOtherGangsOnTheDeviceAreNotItsOwn) {
  std::vector<wire::GangMember> members = {MemberOn(0)};
  DescribeWaits({{0, {.gang = kGang + 1}}}, {{0, {.gang = Ordinal(kGang + 1)}}}, {}, members);
  EXPECT_EQ(members[0].stage(), wire::GangMember::STAGE_PROGRAM);
}

}  // namespace
}  // namespace gangway::worker
