// Submitter: the order, pace and ends of what a session submits.
#include "gangway/client/submitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "gangway/client/recorded_session.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

using ::testing::ElementsAre;

constexpr auto kNothing = [](wire::Op&) {};

void Drop(Submitter& submitter, uint64_t array) {
  ASSERT_TRUE(
      submitter.Append(0, nullptr, [&](wire::Op& op) { op.mutable_drop()->add_handles(array); })
          .ok());
}

wire::Progress Ended(uint64_t first, uint64_t count, uint64_t ended,
                     const absl::Status& why = absl::OkStatus()) {
  wire::Progress progress;
  wire::NodesEnded* nodes = progress.add_nodes();
  nodes->set_first(first);
  nodes->set_count(count);
  if (!why.ok()) *nodes->mutable_failure() = wire::ToFailure(why);
  progress.set_ended(ended);
  return progress;
}

TEST(SubmitterTest, FramesAreNumberedFromTheHelloOn) {
  RecordedSession session;
  session.OnLoop([&] { session.submitter.SetSession(7, SessionId(42)); });
  Drop(session.submitter, 1);
  session.submitter.SendNow();
  const std::vector<wire::Frame> frames = session.link->frames();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].sequence(), 1u);
  EXPECT_EQ(frames[1].sequence(), 2u);
  EXPECT_EQ(frames[1].epoch(), 7u);
}

TEST(SubmitterTest, ACallerSendsOnAnIdleLinkAndTheLoopOnABusyOne) {
  RecordedSession session;
  {
    const Submitter::Sending sending(session.submitter, Urgency::kAtOnce);
    Drop(session.submitter, 1);
  }
  EXPECT_EQ(session.link->frames().size(), 2u);
  std::promise<void> go_on;
  session.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  session.link->queued = 1;
  {
    const Submitter::Sending sending(session.submitter, Urgency::kAtOnce);
    Drop(session.submitter, 2);
  }
  EXPECT_EQ(session.link->frames().size(), 2u);
  go_on.set_value();
  session.OnLoop([] {});
  EXPECT_EQ(session.link->frames().size(), 3u);
}

TEST(SubmitterTest, ABurstTravelsTogether) {
  constexpr size_t kOps = 2000;
  RecordedSession session;
  for (size_t i = 0; i < kOps; ++i) {
    const Submitter::Sending sending(session.submitter);
    Drop(session.submitter, i);
  }
  EXPECT_EQ(session.Ops().size(), kOps);
  EXPECT_LT(session.link->frames().size(), kOps / 4);
}

TEST(SubmitterTest, AnOperationIsJoinedUntilAFrameTakesIt) {
  RecordedSession session;
  auto join = [](wire::Op& last) {
    last.mutable_drop()->add_handles(2);
    return true;
  };
  EXPECT_FALSE(session.submitter.WithLast(join));
  Drop(session.submitter, 1);
  EXPECT_TRUE(session.submitter.WithLast(join));
  session.submitter.SendNow();
  EXPECT_FALSE(session.submitter.WithLast(join));
  const std::vector<wire::Op> ops = session.Ops();
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_THAT(ops[0].drop().handles(), ElementsAre(1, 2));
}

TEST(SubmitterTest, WhatTravelsBesideTheBatchGoesAfterIt) {
  RecordedSession session;
  std::vector<size_t> frames;
  session.take_beside = [&] { return [&] { frames.push_back(session.link->frames().size()); }; };
  Drop(session.submitter, 1);
  session.OnLoop([&] { session.submitter.Flush(); });
  EXPECT_THAT(frames, ElementsAre(2));
}

TEST(SubmitterTest, AnOperationsLastNodeTellsOfItsFirstFailure) {
  RecordedSession session;
  std::vector<absl::StatusCode> heard;
  auto ended = [&](const absl::Status& status) { heard.push_back(status.code()); };
  ASSERT_TRUE(session.submitter.Append(1, ended, kNothing).ok());
  ASSERT_TRUE(session.submitter.Append(3, ended, kNothing).ok());
  EXPECT_EQ(session.submitter.pending(), 4u);
  session.OnLoop([&] {
    session.submitter.OnProgress(Ended(2, 1, 1, absl::DataLossError("lost")));
    session.submitter.OnProgress(Ended(3, 1, 2, absl::AbortedError("late")));
    session.submitter.OnProgress(Ended(1, 1, 3));
    EXPECT_THAT(heard, ElementsAre(absl::StatusCode::kOk));
    session.submitter.OnProgress(Ended(4, 1, 4));
  });
  EXPECT_THAT(heard, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kDataLoss));
  EXPECT_EQ(session.submitter.pending(), 0u);
}

TEST(SubmitterTest, TM2_RoomIsToldBelowTheLimit) {
  RecordedSession session(/*reports_ends=*/true, /*pending_max=*/2);
  int told = 0;
  session.submitter.WhenRoom([&] { ++told; });
  session.OnLoop([] {});
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(session.submitter.Append(3, nullptr, kNothing).ok());
  session.submitter.WhenRoom([&] { ++told; });
  EXPECT_TRUE(session.activity.awaits());
  session.OnLoop([&] { session.submitter.OnProgress(Ended(1, 1, 1)); });
  EXPECT_EQ(told, 1);
  session.OnLoop([&] { session.submitter.OnProgress(Ended(2, 1, 2)); });
  EXPECT_EQ(told, 2);
  EXPECT_FALSE(session.activity.awaits());
}

// Nothing in it looks for ends, of which it was told many.
class UnlookedSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    session_.submitter.EndLook();  // the caller's
    Append(kMany);
    session_.OnLoop([&] { session_.submitter.OnProgress(Ended(1, kMany, kMany)); });
  }
  void Append(uint64_t nodes) {
    ASSERT_TRUE(session_.submitter.Append(nodes, nullptr, kNothing).ok());
  }
  // What each operation so far says of ends.
  std::vector<std::string> Asked() {
    std::vector<std::string> asked;
    for (const wire::Op& op : session_.Ops())
      asked.push_back(op.has_tell_ends() ? wire::EndsTold_Name(op.tell_ends().when()) : "");
    return asked;
  }

  static constexpr uint64_t kMany = EndLooks::kUnlookedEndsMax + 1;
  RecordedSession session_{/*reports_ends=*/true, /*pending_max=*/2};
};

TEST_F(UnlookedSessionTest, TheNextOperationSaysThatEndsMayBeToldTogether) {
  EXPECT_THAT(Asked(), ElementsAre("")) << "not in a message of its own";
  Append(1);
  Append(1);
  EXPECT_THAT(Asked(), ElementsAre("", "ENDS_TOGETHER", "", ""));
}

TEST_F(UnlookedSessionTest, ALookIsToldAtOnceByItsThread) {
  Append(1);
  session_.submitter.SendNow();
  const size_t frames = session_.link->frames().size();
  session_.submitter.BeginLook();
  ASSERT_EQ(session_.link->frames().size(), frames + 1);
  EXPECT_EQ(session_.link->frames().back().session_batch().ops(0).tell_ends().when(),
            wire::ENDS_AT_ONCE);
  session_.submitter.BeginLook();
  session_.submitter.EndLook();
  session_.submitter.EndLook();
  Append(1);
  EXPECT_THAT(Asked(), ElementsAre("", "ENDS_TOGETHER", "", "ENDS_AT_ONCE", ""));
}

TEST_F(UnlookedSessionTest, ALookForOneEndNamesItAndSendsWhatWaits) {
  OperationId last{};
  const auto fill = [&](wire::Op&, OperationId number) { last = number; };
  ASSERT_TRUE(session_.submitter.Append(2 * kMany, nullptr, fill).ok());
  EXPECT_EQ(last, OperationId(3 * kMany)) << "the number of its last node";
  session_.submitter.LookFor(last);
  const std::vector<wire::Frame> frames = session_.link->frames();
  const auto& ops = frames.back().session_batch().ops();
  ASSERT_GT(ops.size(), 0);
  EXPECT_EQ(ops[ops.size() - 1].tell_ends().when(), wire::ENDS_TOGETHER);
  EXPECT_EQ(ops[ops.size() - 1].tell_ends().looked_for(), 3 * kMany);
  for (const OperationId none : {last, OperationId(), OperationId(1), OperationId(3 * kMany + 1)})
    session_.submitter.LookFor(none);
  EXPECT_EQ(session_.link->frames().size(), frames.size())
      << "looked for already, none, ended, not submitted";
}

// One message tells of both ends; the callback of the first asks about the other one.
TEST_F(UnlookedSessionTest, ALookForAnEndThatHasComeWithAnotherOneIsOver) {
  constexpr uint64_t kFirst = kMany + 1, kSecond = kMany + 2;
  Append(1);
  const auto look = [this](const absl::Status&) {
    session_.submitter.LookFor(OperationId(kFirst));
  };
  ASSERT_TRUE(session_.submitter.Append(1, look, kNothing).ok());
  wire::Progress both = Ended(kSecond, 1, kMany + 2);
  *both.add_nodes() = Ended(kFirst, 1, 0).nodes(0);
  session_.OnLoop([&] { session_.submitter.OnProgress(both); });
  session_.submitter.BeginLook();
  session_.submitter.EndLook();
  Append(kMany);
  session_.OnLoop([&] { session_.submitter.OnProgress(Ended(kMany + 3, kMany, 2 * kMany + 2)); });
  Append(1);
  const std::vector<std::string> asked = Asked();
  EXPECT_EQ(asked.at(asked.size() - 2), "ENDS_TOGETHER") << "nothing looks";
}

TEST_F(UnlookedSessionTest, ALookForAnEndNearByIsToldAtOnce) {
  Append(1);
  session_.submitter.LookFor(OperationId(kMany + 1));
  EXPECT_THAT(Asked(), ElementsAre("", "ENDS_TOGETHER", "", "ENDS_AT_ONCE"));
}

TEST_F(UnlookedSessionTest, TM2_WhatWaitsForRoomLooksForEnds) {
  Append(3);
  session_.submitter.WhenRoom([] {});
  EXPECT_THAT(Asked(), ElementsAre("", "ENDS_TOGETHER", "", "ENDS_AT_ONCE"));
  session_.OnLoop([&] {
    session_.submitter.OnProgress(Ended(kMany + 1, 3, kMany + 3));
    session_.submitter.OnProgress(Ended(kMany + 4, kMany, 2 * kMany + 3));
  });
  Append(1);
  EXPECT_EQ(Asked().at(4), "ENDS_TOGETHER") << "the look has ended";
}

TEST_F(UnlookedSessionTest, ALookOfALostSessionSendsNothing) {
  Append(1);
  session_.Lose(absl::UnavailableError("cut"));
  const size_t frames = session_.link->frames().size();
  session_.submitter.BeginLook();
  session_.submitter.LookFor(OperationId(kMany + 1));
  session_.OnLoop([] {});
  EXPECT_EQ(session_.link->frames().size(), frames);
}

TEST_F(UnlookedSessionTest, FarAheadOfWhatItWaitsForACallerSendsNothingItself) {
  std::promise<void> go_on;  // the loop sends nothing until then
  session_.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  OperationId last{};
  const auto call = [&] {
    const Submitter::Sending sending(session_.submitter);
    const auto fill = [&](wire::Op&, OperationId number) { last = number; };
    ASSERT_TRUE(session_.submitter.Append(1, nullptr, fill).ok());
  };
  const auto sent = [&] { return session_.link->frames().size(); };
  session_.Advance({});
  for (uint64_t i = 0; i < kMany; ++i) call();
  const size_t before = sent();
  for (int i = 0; i < 500; ++i) {
    session_.Advance(std::chrono::microseconds(40));  // as a script's calls
    call();
  }
  EXPECT_EQ(sent(), before) << "the caller has earned 200 sends at once";
  session_.submitter.LookFor(last);
  call();
  const std::vector<wire::Frame> frames = session_.link->frames();
  uint64_t nodes = 0;
  for (const wire::Frame& frame : frames)
    for (const wire::Op& op : frame.session_batch().ops()) nodes += op.has_tell_ends() ? 0 : 1;
  EXPECT_EQ(OperationId(kMany + nodes - 1), last) << "a look sends what is held";
  const auto& newest = frames.back().session_batch().ops();
  EXPECT_TRUE(newest.size() == 1 && !newest[0].has_tell_ends())
      << "what follows a wait may be waited for as well";
  go_on.set_value();
}

// It is not known which end the caller waits for: it may be that of the call which was made last.
TEST(SubmitterTest, ACallerThatLooksForEveryEndIsNeverFarAhead) {
  RecordedSession session;
  std::promise<void> go_on;  // the loop sends nothing until then
  session.loop.Post([gate = go_on.get_future().share()] { gate.wait(); });
  for (int i = 0; i < 500; ++i) {
    const auto next = Clock::now() + std::chrono::microseconds(40);  // as a script's calls
    const Submitter::Sending sending(session.submitter);
    ASSERT_TRUE(session.submitter.Append(1, nullptr, kNothing).ok());
    while (Clock::now() < next) continue;
  }
  EXPECT_GT(session.link->frames().size(), 50u) << "the caller has earned 200 sends at once";
  go_on.set_value();
}

TEST(SubmitterTest, ALostSessionRefusesAndEndsWhatItHad) {
  RecordedSession session;
  std::vector<absl::StatusCode> heard;
  auto ended = [&](const absl::Status& status) { heard.push_back(status.code()); };
  ASSERT_TRUE(session.submitter.Append(4, ended, kNothing).ok());
  bool has_room = false;
  session.submitter.WhenRoom([&] { has_room = true; });
  const size_t frames = session.link->frames().size();
  EXPECT_EQ(frames, 2u) << "what waits for room sends what makes it";
  session.Lose(absl::UnavailableError("cut"));
  EXPECT_FALSE(session.submitter.Lose(absl::AbortedError("again")));
  EXPECT_TRUE(has_room);
  EXPECT_EQ(session.submitter.pending(), 0u);
  EXPECT_TRUE(absl::IsUnavailable(session.submitter.Append(1, ended, kNothing)));
  session.OnLoop([] {});
  EXPECT_THAT(heard, ElementsAre(absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable));
  EXPECT_EQ(session.link->frames().size(), frames);
}

// Later operations must not arrive without the lost ones.
TEST(SubmitterTest, ALinkThatRefusesAFrameIsNotUsedAgain) {
  RecordedSession session;
  session.link->Refuse(absl::ResourceExhaustedError("full"));
  Drop(session.submitter, 1);
  session.submitter.SendNow();
  session.OnLoop([&] { EXPECT_TRUE(absl::IsResourceExhausted(session.failure)); });
  session.link->Refuse(absl::OkStatus());
  Drop(session.submitter, 2);
  EXPECT_TRUE(session.Ops().empty());
  EXPECT_EQ(session.failures, 1);
}

}  // namespace
}  // namespace gangway::client
