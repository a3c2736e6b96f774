// Captured bursts: which operations of a frame are launched as a program, and when.
#include "gangway/client/captured_bursts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gangway/client/captured_ops.h"
#include "gangway/client/recorded_session.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;

// A chain of calls of `executable`, on the arrays from `first` on.
std::vector<wire::Op> Chain(uint64_t executable, uint64_t first,
                            uint64_t calls = CapturedBursts::kNodesMin) {
  std::vector<wire::Op> ops;
  for (uint64_t i = first; i < first + calls; ++i) ops.push_back(CallOf(executable, {i}, {i + 1}));
  return ops;
}

class CapturedBurstsTest : public ::testing::Test {
 protected:
  // How many operations are sent for a frame of these. The controller accepts programs.
  size_t Send(const std::vector<wire::Op>& ops) {
    CapturedRun::Ops frame = OpsOf(ops);
    submitted_.Apply(frame);
    bursts_.Replace(frame);
    sent_.Apply(frame);
    EXPECT_EQ(sent_.TakeNodes(), submitted_.TakeNodes());
    EXPECT_EQ(sent_.arrays(), submitted_.arrays());
    for (const wire::Op& op : frame)
      if (op.has_register_program()) programs_.OnRegistered(op.register_program().program(), true);
    return static_cast<size_t>(frame.size());
  }

  uint64_t last_program_ = 0;
  CapturedPrograms programs_{[this] { return ++last_program_; }};
  CapturedBursts bursts_{&programs_};
  Meaning submitted_, sent_;
};

TEST_F(CapturedBurstsTest, ABurstIsLaunchedTheFourthTime) {
  EXPECT_EQ(Send(Chain(9, 100)), 16u);
  EXPECT_TRUE(programs_.empty()) << "it was only looked at";
  EXPECT_EQ(Send(Chain(9, 200)), 16u);
  EXPECT_EQ(Send(Chain(9, 300)), 17u);
  EXPECT_EQ(Send(Chain(9, 400)), 1u);
  EXPECT_EQ(Send(Chain(9, 500)), 1u);
}

TEST_F(CapturedBurstsTest, BurstsThatDifferAtAGlanceAreNotLookedAt) {
  for (uint64_t i = 0; i < 100; ++i) Send(Chain(100 + i, 1000 * i));
  for (uint64_t calls = 16; calls < 40; ++calls) Send(Chain(9, 1000 * calls, calls));
  EXPECT_TRUE(programs_.empty());
}

TEST_F(CapturedBurstsTest, ASmallBurstIsSentAsItCame) {
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(Send(Chain(9, 1000 * i, 15)), 15u);
  EXPECT_TRUE(programs_.empty());
}

TEST_F(CapturedBurstsTest, WhatNeedsAnAnswerStaysWhereItIs) {
  const auto frame = [](uint64_t first) {
    std::vector<wire::Op> ops = Chain(9, first);
    wire::Op await;
    await.mutable_await()->set_await(first);
    ops.push_back(await);
    for (const wire::Op& op : Chain(8, first + 100)) ops.push_back(op);
    ops.insert(ops.begin(), await);
    return ops;
  };
  for (uint64_t i = 1; i <= 3; ++i) Send(frame(1000 * i));
  CapturedRun::Ops sent = OpsOf(frame(4000));
  bursts_.Replace(sent);
  std::vector<wire::Op::OpCase> kinds;
  for (const wire::Op& op : sent) kinds.push_back(op.op_case());
  EXPECT_THAT(
      kinds, ElementsAre(wire::Op::kAwait, wire::Op::kLaunch, wire::Op::kAwait, wire::Op::kLaunch));
}

// Through the Submitter: of a session that wants it, and of one that does not.
TEST(SubmittedBurstsTest, OnlyASessionThatWantsItCaptures) {
  for (const bool wanted : {true, false}) {
    RecordedSession session(/*reports_ends=*/true, /*pending_max=*/4, wanted);
    size_t sent = 0;
    for (uint64_t i = 1; i <= 4; ++i) {
      session.OnLoop([&] {  // so that one frame takes all
        for (const wire::Op& call : Chain(9, 100 * i)) {
          ASSERT_TRUE(session.submitter.Append(1, nullptr, [&](wire::Op& op) { op = call; }).ok());
        }
      });
      const std::vector<wire::Op> ops = session.Ops();
      if (ops.back().has_register_program()) {
        wire::Registered registered;
        registered.set_program(ops.back().register_program().program());
        session.OnLoop([&] { session.submitter.OnRegistered(registered); });
      }
      EXPECT_EQ(ops.back().has_launch(), wanted && i == 4);
      sent = ops.size();
    }
    EXPECT_EQ(sent, wanted ? 3 * 16 + 2 : 4 * 16);
    EXPECT_EQ(session.submitter.pending(), 64u);
  }
}

}  // namespace
}  // namespace gangway::client
