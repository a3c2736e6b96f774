// Tests of running_gangs.h.
#include "gangway/worker/service/launch/running_gangs.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

class FakeGang final : public RunningGang {
 public:
  explicit FakeGang(uint64_t ordinal) : ordinal_(ordinal) {}
  std::vector<wire::GangMember> Members() const override {
    wire::GangMember member;
    member.set_gang(ordinal_);
    return {member, member};
  }

 private:
  const uint64_t ordinal_;
};

TEST(RunningGangsTest, OnlyOldGangsAreNamedAndNoMoreThanTheOldest) {
  RunningGangs gangs;
  Clock::time_point now{};
  const milliseconds age(1000);
  for (uint64_t i = 20; i > 0; --i) gangs.Add(Ordinal(i), std::make_shared<FakeGang>(i));
  EXPECT_TRUE(gangs.Look(now, age).empty());
  now += age;
  gangs.Add(Ordinal(30), std::make_shared<FakeGang>(30));
  const auto members = gangs.Look(now, age);
  ASSERT_EQ(members.size(), 2 * RunningGangs::kGangsMax);
  EXPECT_EQ(members.front().gang(), 1u);
  EXPECT_EQ(members.back().gang(), RunningGangs::kGangsMax);
  for (uint64_t i = 1; i <= 20; ++i) gangs.Remove(Ordinal(i));
  EXPECT_TRUE(gangs.Look(now + milliseconds(500), age).empty()) << "the last one is young";
  EXPECT_EQ(gangs.Look(now + age, age).size(), 2u);
  gangs.Clear();
  EXPECT_TRUE(gangs.Look(now + age, age).empty());
}

}  // namespace
}  // namespace gangway::worker
