// The life of compiler processes: who starts, works, is overdue, and may end.
#include "gangway/controller/core/compiler_processes.h"

#include <gtest/gtest.h>

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = CompilerProcesses::State;

constexpr Time kNow{seconds(1000)};

TEST(CompilerProcessesTest, OnlyAFreeProcessHasRoom) {
  CompilerProcesses processes(1);
  EXPECT_FALSE(processes.AnyUp());
  EXPECT_FALSE(processes.ForLookups().has_value());
  EXPECT_FALSE(processes.ever_up());
  processes.OnUp(0, kNow);
  EXPECT_TRUE(processes[0].free());
  EXPECT_FALSE(processes.AllAtWork());
  processes.BeginRun(0, 7, kNow);
  EXPECT_FALSE(processes.AnyFree());
  EXPECT_TRUE(processes.AllAtWork());
  EXPECT_EQ(processes.ForLookups(), 0u) << "one at work looks up, if no other can";
  processes.EndRun(0, kNow + seconds(3));
  EXPECT_TRUE(processes[0].free());
  EXPECT_EQ(processes[0].since, kNow + seconds(3));
  const CompilerProcesses::Process was = processes.OnDown(0, kNow + seconds(4));
  EXPECT_EQ(was.state, State::kUp);
  EXPECT_FALSE(processes.AnyUp());
  EXPECT_TRUE(processes.ever_up());
}

TEST(CompilerProcessesTest, AProcessThatWasToldToEndStaysSoWhenItsLinkEnds) {
  CompilerProcesses processes(1);
  processes.OnUp(0, kNow);
  processes.OnLinkEnding(0);
  EXPECT_EQ(processes[0].state, State::kDown);
  processes.OnUp(0, kNow);
  processes[0].state = State::kEnding;
  processes.OnLinkEnding(0);
  EXPECT_EQ(processes.OnDown(0, kNow).state, State::kEnding);
}

TEST(CompilerProcessesTest, ASpareThatDoesNotStartIsOverdueAndIsAskedForAgainLater) {
  CompilerProcesses processes(2);
  processes.OnUp(0, kNow);
  EXPECT_TRUE(processes.AnySpareUnasked());
  processes.BeginRun(0, 7, kNow);
  processes.AskFor(1, kNow);
  EXPECT_EQ(processes[1].state, State::kStarting);
  EXPECT_FALSE(processes.MayAskFor(1));
  EXPECT_FALSE(processes.AllAtWork()) << "one starts";
  EXPECT_FALSE(processes.NoteLateStart(1, kNow + kSpareStartMax - milliseconds(1)));
  EXPECT_EQ(processes.UsableCount(), 2u);
  EXPECT_TRUE(processes.NoteLateStart(1, kNow + kSpareStartMax));
  EXPECT_FALSE(processes.NoteLateStart(1, kNow + kSpareStartMax)) << "once";
  EXPECT_EQ(processes.UsableCount(), 1u);
  EXPECT_TRUE(processes.AllAtWork());
  EXPECT_FALSE(processes.MayAskFor(1));
  EXPECT_FALSE(processes.NoteLateStart(1, kNow + kSpareIdle));
  EXPECT_TRUE(processes.MayAskFor(1));
  processes.AskFor(1, kNow + kSpareIdle);
  EXPECT_EQ(processes[1].state, State::kOverdue) << "compiles do not wait for it a second time";
  processes.OnUp(1, kNow + kSpareIdle);
  EXPECT_EQ(processes.UsableCount(), 2u);
  EXPECT_FALSE(processes[1].asked_for.has_value());
}

TEST(CompilerProcessesTest, AnIdleSpareEndsOnlyWhileAnotherProcessIsFree) {
  CompilerProcesses processes(2);
  processes.OnUp(0, kNow);
  processes.OnUp(1, kNow + seconds(1));
  EXPECT_FALSE(processes.IdleEndOf(0).has_value()) << "the first always runs";
  EXPECT_EQ(processes.IdleEndOf(1), kNow + seconds(1) + kSpareIdle);
  processes.BeginRun(0, 7, kNow);
  EXPECT_FALSE(processes.IdleEndOf(1).has_value());
}

}  // namespace
}  // namespace gangway::controller
