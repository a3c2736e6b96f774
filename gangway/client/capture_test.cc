// Capture through the Submitter: what is held, what ends a run, and in which order all is sent.
#include "gangway/client/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gangway/client/array_literal.h"
#include "gangway/client/recorded_session.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ExecutableHandle kStep{9};

class CaptureTest : public ::testing::Test {
 protected:
  // A block of `calls` calls in a row, the arrays from `first` on. The one before it is the argument.
  void Chain(uint64_t calls, uint64_t first) {
    for (uint64_t i = first; i < first + calls; ++i)
      handles_.Call(kStep, std::array{ArrayHandle(i - 1)}, std::array{ArrayHandle(i)}, {});
  }
  ProgramCapture Block(uint64_t calls, uint64_t first) {
    submitter_.BeginProgram();
    Chain(calls, first);
    return submitter_.EndProgram();
  }
  // The kinds of the operations that were sent since the last call. The controller accepts programs.
  std::vector<wire::Op> Sent() {
    std::vector<wire::Op> ops = session_.Ops();
    ops.erase(ops.begin(), ops.begin() + static_cast<ptrdiff_t>(seen_));
    seen_ += ops.size();
    for (const wire::Op& op : ops) {
      if (!op.has_register_program()) continue;
      wire::Registered registered;
      registered.set_program(op.register_program().program());
      session_.OnLoop([&] { submitter_.OnRegistered(registered); });
    }
    return ops;
  }
  static std::vector<wire::Op::OpCase> KindsOf(const std::vector<wire::Op>& ops) {
    std::vector<wire::Op::OpCase> kinds;
    for (const wire::Op& op : ops) kinds.push_back(op.op_case());
    return kinds;
  }
  std::vector<wire::Op::OpCase> SentKinds() { return KindsOf(Sent()); }

  RecordedSession session_;
  Submitter& submitter_ = session_.submitter;
  Handles& handles_ = session_.handles;
  size_t seen_ = 0;
};

constexpr auto kCall = wire::Op::kCall;
constexpr auto kLaunch = wire::Op::kLaunch;
constexpr auto kRegister = wire::Op::kRegisterProgram;
constexpr auto kAwait = wire::Op::kAwait;

TEST_F(CaptureTest, ABlockThatComesAgainIsOneLaunch) {
  submitter_.BeginProgram();
  Chain(3, 11);
  EXPECT_THAT(SentKinds(), IsEmpty()) << "they are held";
  ProgramCapture first = submitter_.EndProgram();
  EXPECT_EQ(first.launches, 0u);
  EXPECT_EQ(first.operations_sent_as_they_came, 3u);
  EXPECT_THAT(SentKinds(), ElementsAre(kCall, kCall, kCall, kRegister));
  const ProgramCapture second = Block(3, 21);
  EXPECT_EQ(second.launches, 1u);
  EXPECT_EQ(second.operations_sent_as_they_came, 0u);
  EXPECT_EQ(second.cut_by, "");
  const std::vector<wire::Op> sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_THAT(sent[0].launch().arguments(), ElementsAre(20));
  EXPECT_THAT(sent[0].launch().results(), ElementsAre(21, 22, 23));
}

TEST_F(CaptureTest, OperationsHaveTheSameNumbersAndEnds) {
  Block(3, 11);
  Sent();
  std::vector<int> ended;
  submitter_.BeginProgram();
  for (int i = 0; i < 2; ++i) {
    CallOptions options;
    options.ended = [&ended, i](const absl::Status&) { ended.push_back(i); };
    const OperationId call = handles_.Call(kStep, std::array{ArrayHandle(20 + i)},
                                           std::array{ArrayHandle(21 + i)}, std::move(options));
    EXPECT_EQ(NumberOf(call), 4u + i);
  }
  Chain(1, 23);
  EXPECT_EQ(submitter_.EndProgram().launches, 1u);
  EXPECT_EQ(NumberOf(handles_.Call(kStep, {}, std::array{1_array}, {})), 7u);
  EXPECT_EQ(submitter_.pending(), 7u);
  wire::Progress progress;
  progress.add_nodes()->set_first(5);
  progress.mutable_nodes(0)->set_count(1);
  session_.OnLoop([&] { submitter_.OnProgress(progress); });
  EXPECT_THAT(ended, ElementsAre(1));
}

TEST_F(CaptureTest, AnOperationThatNeedsAnAnswerEndsARun) {
  for (uint64_t pass = 1; pass <= 4; ++pass) {
    submitter_.BeginProgram();
    Chain(2, 100 * pass + 1);
    {
      const Submitter::Sending sending(submitter_, Urgency::kAtOnce);
      ASSERT_TRUE(
          submitter_.Append(0, nullptr, [](wire::Op& op) { op.mutable_await()->set_await(1); })
              .ok());
    }
    const auto first = SentKinds();
    Chain(3, 100 * pass + 51);
    EXPECT_THAT(SentKinds(), IsEmpty());
    const ProgramCapture capture = submitter_.EndProgram();
    EXPECT_EQ(capture.cut_by, "await");
    const auto second = SentKinds();
    if (pass == 1) {
      EXPECT_THAT(first, ElementsAre(kCall, kCall, kAwait));
      EXPECT_THAT(second, ElementsAre(kCall, kCall, kCall, kRegister));
      EXPECT_EQ(capture.operations_sent_as_they_came, 6u);
    } else if (pass == 2) {
      EXPECT_THAT(first, ElementsAre(kCall, kCall, kRegister, kAwait)) << "it was cut";
      EXPECT_THAT(second, ElementsAre(kLaunch));
    } else {
      EXPECT_THAT(first, ElementsAre(kLaunch, kAwait));
      EXPECT_THAT(second, ElementsAre(kLaunch));
      EXPECT_EQ(capture.launches, 2u);
      EXPECT_EQ(capture.operations_sent_as_they_came, 1u);
    }
  }
}

TEST_F(CaptureTest, AWaitEndsARunUnlessItIsForAnEarlierOperation) {
  session_.submitter.EndLook();  // the one with which a session starts
  const OperationId before = handles_.Call(kStep, {}, std::array{1_array}, {});
  Sent();
  submitter_.BeginProgram();
  Chain(2, 11);
  submitter_.LookFor(before);
  EXPECT_THAT(SentKinds(), IsEmpty());
  const OperationId last = handles_.Call(kStep, std::array{12_array}, std::array{13_array}, {});
  submitter_.LookFor(last);
  EXPECT_THAT(SentKinds(), ElementsAre(kCall, kCall, kCall));
  Chain(2, 21);
  submitter_.SendNow();
  EXPECT_THAT(SentKinds(), ElementsAre(kCall, kCall));
  Chain(2, 31);
  submitter_.BeginLook();
  EXPECT_EQ(SentKinds().size(), 3u) << "the run of two is known by now, and was registered";
  EXPECT_EQ(submitter_.EndProgram().cut_by, "a wait");
}

// Else a caller that waits for room, which what is held takes, would wait for itself.
TEST_F(CaptureTest, TM2_AWaitForRoomEndsARun) {
  submitter_.BeginProgram();
  Chain(4, 11);  // pending_max
  submitter_.WhenRoom([] {});
  EXPECT_EQ(SentKinds().size(), 4u);
  submitter_.EndProgram();
}

TEST_F(CaptureTest, TM2_ARunThatReachesTheLimitEndsByItself) {
  submitter_.BeginProgram();
  Chain(Capture::kNodesMax + 1, 11);
  const std::vector<wire::Op> sent = Sent();
  EXPECT_EQ(sent.size(), Capture::kNodesMax + 1);
  EXPECT_TRUE(sent.back().has_register_program());
  const ProgramCapture capture = submitter_.EndProgram();
  EXPECT_EQ(capture.cut_by, "the limit of one program");
  EXPECT_EQ(capture.operations_sent_as_they_came, Capture::kNodesMax + 1);
  EXPECT_THAT(SentKinds(), ElementsAre(kCall));
  const std::vector<ArrayHandle> many(100000, 7_array);
  submitter_.BeginProgram();
  for (uint64_t i = 0; SentKinds().empty(); ++i) {
    ASSERT_LT(i, 100u) << "4 MiB are not noticed";
    handles_.Call(kStep, many, std::array{ArrayHandle(1000000 + i)}, {});
  }
  submitter_.EndProgram();
}

TEST_F(CaptureTest, BlocksNest) {
  Block(3, 11);
  Sent();
  submitter_.BeginProgram();
  Chain(1, 21);
  const ProgramCapture inner = Block(1, 22);
  EXPECT_EQ(inner.launches + inner.operations_sent_as_they_came, 0u);
  Chain(1, 23);
  EXPECT_EQ(submitter_.EndProgram().launches, 1u);
  EXPECT_EQ(submitter_.EndProgram().launches, 0u) << "none was begun";
  Chain(1, 31);
  EXPECT_THAT(SentKinds(), ElementsAre(kLaunch, kCall));
}

TEST_F(CaptureTest, AnExecutablesProgramsAreDroppedBeforeIt) {
  Block(3, 11);
  Sent();
  handles_.DropExecutables(std::array{ExecutableHandle(8)});
  EXPECT_THAT(SentKinds(), ElementsAre(wire::Op::kDropExecutables));
  submitter_.BeginProgram();
  Chain(3, 21);
  handles_.DropExecutables(std::array{kStep});
  submitter_.EndProgram();
  EXPECT_THAT(SentKinds(),
              ElementsAre(kLaunch, wire::Op::kDropPrograms, wire::Op::kDropExecutables));
}

TEST_F(CaptureTest, AProgramThatMadeRoomIsDroppedBehindTheRun) {
  const auto block = [this](uint64_t executable, uint64_t first) {
    submitter_.BeginProgram();
    for (uint64_t i = first; i < first + 2; ++i) {
      handles_.Call(ExecutableHandle(executable), std::array{ArrayHandle(i)},
                    std::array{ArrayHandle(i + 1)}, {});
    }
    return submitter_.EndProgram();
  };
  for (uint64_t executable = 1; executable <= 256; ++executable) block(executable, 1000);
  EXPECT_EQ(Sent().size(), 3 * 256u);
  block(257, 2000);
  EXPECT_THAT(SentKinds(), ElementsAre(kCall, kCall, kRegister, wire::Op::kDropPrograms));
  EXPECT_EQ(block(2, 3000).launches, 1u);
  EXPECT_EQ(block(1, 4000).launches, 0u);
}

TEST_F(CaptureTest, OperationsInARowJoinAsWithout) {
  handles_.Drop(std::array{1_array});
  submitter_.BeginProgram();
  handles_.Drop(std::array{2_array});
  Chain(1, 11);
  handles_.Drop(std::array{3_array});
  handles_.Drop(std::array{4_array});
  EXPECT_EQ(submitter_.EndProgram().operations_sent_as_they_came, 2u);
  const std::vector<wire::Op> sent = Sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_THAT(sent[0].drop().handles(), ElementsAre(1, 2));
  EXPECT_TRUE(sent[1].has_call());
  EXPECT_THAT(sent[2].drop().handles(), ElementsAre(3, 4));
}

TEST_F(CaptureTest, ALostSessionHoldsNothing) {
  std::vector<absl::StatusCode> heard;
  submitter_.BeginProgram();
  CallOptions options;
  options.ended = [&](const absl::Status& status) { heard.push_back(status.code()); };
  handles_.Call(kStep, {}, std::array{1_array}, std::move(options));
  session_.Lose(absl::UnavailableError("cut"));
  EXPECT_THAT(heard, ElementsAre(absl::StatusCode::kUnavailable));
  const ProgramCapture capture = submitter_.EndProgram();
  EXPECT_EQ(capture.launches + capture.operations_sent_as_they_came, 0u);
  EXPECT_THAT(SentKinds(), IsEmpty());
}

}  // namespace
}  // namespace gangway::client
