// Unit tests of nodes.h.
#include "gangway/controller/core/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NodesTest : public testing::Test {
 protected:
  void SetUp() override {
    nodes_.Open(SessionId(1), /*wants_ends=*/true);
    nodes_.Open(SessionId(2), /*wants_ends=*/false);
  }

  // A node of two islands, with one result.
  Ordinal Add(Nodes::Node node = {}, SessionId session = SessionId(1)) {
    const Ordinal ordinal = nodes_.next();
    const DeviceListRef devices = fleet_.ListOf(Devices{0, 4});
    const StorageId result = storages_.Add(session, devices, 8, ordinal);
    storages_.Hold({result, 0, 2});
    node.results = {result};
    node.open_islands = {0, 1};
    nodes_.Add(session, std::move(node));
    return ordinal;
  }
  void Done(uint32_t island, Ordinal ordinal, const std::string& failure = "") {
    wire::Done done;
    done.set_ordinal(ordinal.number());
    if (!failure.empty()) *done.mutable_failure() = *SomeFailure(failure);
    nodes_.OnDone(island, done);
  }
  void EndOne(const std::string& failure = "") {
    const Ordinal ordinal = Add();
    Done(0, ordinal);
    Done(1, ordinal, failure);
  }
  void TellEnds(wire::EndsTold when, SessionId session = SessionId(1), uint64_t looked_for = 0) {
    wire::TellEndsOp op;
    op.set_when(when);
    op.set_looked_for(looked_for);
    nodes_.OnTellEnds(session, op);
  }
  // Together, but this node at once.
  void LookFor(uint64_t number) { TellEnds(wire::ENDS_TOGETHER, SessionId(1), number); }
  // What is told at the end of a step so much later.
  std::vector<std::string> ToldAfter(microseconds time) {
    now_ += time;
    nodes_.ReportProgress(now_);
    return Told();
  }
  std::string MessageOf(uint64_t storage) const {
    const wire::FailureRef failure = storages_.FailureOf({StorageId(storage), 0, 2});
    return failure ? failure->message() : "";
  }
  // "ISLAND:WHAT" of all items since the last time.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    for (const auto& [island, item] : outbox_.Take().to_islands) {
      sent.push_back(absl::StrCat(island, item.has_cancel()     ? ":cancel"
                                          : item.has_admit()    ? ":admit"
                                          : item.has_release()  ? ":release"
                                          : item.has_released() ? ":released"
                                                                : ":other"));
    }
    return sent;
  }
  // What each event tells since the last time: "SESSION:ENDED" of a Progress, or "SESSION:upload failed".
  std::vector<std::string> Told() {
    std::vector<std::string> told;
    for (const auto& [session, event] : outbox_.Take().to_clients) {
      told.push_back(event.has_progress()
                         ? absl::StrCat(session, ":", event.progress().ended())
                         : absl::StrCat(session, event.has_upload_failed() ? ":upload failed"
                                                                           : ":fetch failed"));
    }
    return told;
  }
  static LaunchedProgramRef Program() {
    return std::make_shared<const LaunchedProgram>(LaunchedProgram{
        .hash = "hash", .name = "step", .session = SessionId(1), .owner = Owner("", SessionId(1))});
  }

  Time now_{std::chrono::seconds(1)};
  Fleet fleet_{FourWorkers()};
  Outbox outbox_{2, {}, std::chrono::milliseconds(1000)};
  Storages storages_{fleet_.lists(), outbox_};
  Awaits awaits_{outbox_};
  Blame blame_{BlameLimits{}};
  Nodes nodes_{/*pending_max=*/2, storages_, awaits_, blame_, outbox_};
};

TEST_F(NodesTest, ANodeEndsWithItsLastIsland) {
  const Ordinal ordinal = Add();
  Done(0, ordinal);
  EXPECT_TRUE(nodes_.IsOpenOn(ordinal, 1));
  Done(0, ordinal);  // it is open there no more
  EXPECT_EQ(nodes_.size(), 1u);
  EXPECT_EQ(storages_.ProducerOf(StorageId(1)), ordinal);
  Done(1, ordinal);
  EXPECT_EQ(nodes_.size(), 0u);
  EXPECT_EQ(storages_.ProducerOf(StorageId(1)), Ordinal());
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 0u);
}

TEST_F(NodesTest, TheFirstFailureSpoilsTheResultsAndCancelsTheRest_ER2) {
  const Ordinal ordinal = Add();
  Done(1, ordinal, "first");
  EXPECT_EQ(MessageOf(1), "first");
  EXPECT_THAT(Sent(), ElementsAre("0:cancel"));
  Done(0, ordinal, "second");
  EXPECT_EQ(MessageOf(1), "first");
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(NodesTest, GangsOverIslandsTakeTheirTurnAndLeaveItWhenTheyFail_GS4) {
  const Ordinal ordinal = Add({.launched = Program()});
  EXPECT_EQ(nodes_.spanning_count(), 1u);
  wire::Report ready, admitted;
  ready.mutable_ready()->add_ordinals(ordinal.number());
  admitted.mutable_admitted()->add_ordinals(ordinal.number());
  nodes_.OnReady(0, ready);
  EXPECT_THAT(Sent(), IsEmpty());
  nodes_.OnReady(1, ready);
  EXPECT_THAT(Sent(), testing::UnorderedElementsAre("0:admit", "1:admit"));
  nodes_.OnReady(0, admitted);
  Done(1, ordinal, "it fails");
  EXPECT_EQ(nodes_.spanning_count(), 0u);
  nodes_.OnReady(1, admitted);
  EXPECT_THAT(Sent(), ElementsAre("0:cancel"));
}

TEST_F(NodesTest, ACopyIsReleasedOnceAllItsSourcesAre_GS4) {
  const Ordinal ordinal = Add({.unreleased_sources = {0, 1}, .senders = {0, 2}});
  wire::Released released;
  released.add_ordinals(ordinal.number());
  nodes_.OnReleased(0, released, fleet_);
  nodes_.OnReleased(0, released, fleet_);
  EXPECT_THAT(Sent(), IsEmpty());
  nodes_.OnReleased(1, released, fleet_);
  EXPECT_THAT(Sent(), testing::UnorderedElementsAre("0:released", "1:released"));
}

TEST_F(NodesTest, ASessionHasRoomForTwiceItsNodes_TM2) {
  std::vector<Ordinal> ordinals;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(nodes_.CheckRoom(SessionId(1)), nullptr);
    ordinals.push_back(Add());
  }
  EXPECT_THAT(nodes_.CheckRoom(SessionId(1))->message(), HasSubstr("4 pending nodes"));
  EXPECT_EQ(nodes_.CheckRoom(SessionId(2)), nullptr);
  for (const uint32_t island : {0, 1}) Done(island, ordinals[2]);
  EXPECT_EQ(nodes_.CheckRoom(SessionId(1)), nullptr);
}

TEST_F(NodesTest, AnUploadIsKnownByItsNumberUntilItEnds_TM1) {
  const Ordinal ordinal = Add({.upload = UploadId(7)});
  EXPECT_TRUE(nodes_.HasUpload(SessionId(1), UploadId(7)));
  EXPECT_FALSE(nodes_.HasUpload(SessionId(2), UploadId(7)));
  wire::AbandonOp abandon;
  abandon.set_upload(7);
  nodes_.OnAbandon(SessionId(1), abandon);
  EXPECT_EQ(MessageOf(1), "the upload was abandoned");
  for (const uint32_t island : {0, 1}) Done(island, ordinal);
  EXPECT_FALSE(nodes_.HasUpload(SessionId(1), UploadId(7)));
  EXPECT_THAT(Told(), ElementsAre("1:upload failed"));
}

TEST_F(NodesTest, ASessionIsToldWhatItAskedFor) {
  const Ordinal of_one = Add(), of_two = Add({}, SessionId(2));
  nodes_.ReportProgress(now_);
  EXPECT_THAT(Told(), IsEmpty());
  for (const Ordinal ordinal : {of_one, of_two})
    for (const uint32_t island : {0, 1}) Done(island, ordinal);
  nodes_.Refuse(SessionId(1), SomeFailure("refused"));
  nodes_.ReportProgress(now_);
  EXPECT_THAT(Told(), ElementsAre("1:2")) << "the other one counts only, now and then";
}

// Of a session that looks for none: 10 ms after the first of them.
TEST_F(NodesTest, EndsAreToldTogetherToASessionThatSaysSo_TM2) {
  TellEnds(wire::ENDS_TOGETHER);
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  Add();  // pending
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  EXPECT_EQ(nodes_.next_deadline(), now_ + milliseconds(10));
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(9)), IsEmpty());
  EXPECT_THAT(ToldAfter(milliseconds(1)), ElementsAre("1:2"));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  EXPECT_THAT(ToldAfter(milliseconds(20)), IsEmpty());
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "the time counts from the next end";
  EXPECT_THAT(ToldAfter(milliseconds(10)), ElementsAre("1:3"));
}

TEST_F(NodesTest, WhatHasEndedIsToldOnceNothingHasBeenPendingForAMoment_TM2) {
  TellEnds(wire::ENDS_TOGETHER);
  EndOne();
  EXPECT_THAT(ToldAfter(microseconds(0)), IsEmpty());
  EXPECT_EQ(nodes_.next_deadline(), now_ + microseconds(500));
  const Ordinal next = Add();
  EXPECT_THAT(ToldAfter(microseconds(500)), IsEmpty()) << "another one is pending";
  EXPECT_EQ(nodes_.next_deadline(), now_ + microseconds(9500));
  for (const uint32_t island : {0, 1}) Done(island, next);
  EXPECT_THAT(ToldAfter(microseconds(100)), IsEmpty());
  EXPECT_THAT(ToldAfter(microseconds(499)), IsEmpty());
  EXPECT_THAT(ToldAfter(microseconds(1)), ElementsAre("1:2"));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
}

TEST_F(NodesTest, ASessionThatIsNeverIdleForLongIsToldInItsTime_TM2) {
  TellEnds(wire::ENDS_TOGETHER);
  for (int i = 0; i < 25; ++i) {
    EndOne();
    EXPECT_THAT(ToldAfter(microseconds(400)), IsEmpty());
  }
  EndOne();
  EXPECT_THAT(ToldAfter(microseconds(400)), ElementsAre("1:26"));
}

TEST_F(NodesTest, ManyEndsAreToldBeforeTheirTime_TM2) {
  TellEnds(wire::ENDS_TOGETHER);
  for (int i = 0; i < 255; ++i) EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:256"));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
}

TEST_F(NodesTest, AFailureIsToldAtOnceWithAllThatHasEnded_ER1) {
  TellEnds(wire::ENDS_TOGETHER);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  EndOne("it fails");
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:2"));
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "the failure was told";
  nodes_.Refuse(SessionId(1), SomeFailure("refused"));
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:4"));
}

TEST_F(NodesTest, ASessionThatLooksIsToldAllThatHasEndedAndEachFromThenOn) {
  TellEnds(wire::ENDS_TOGETHER);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  TellEnds(wire::ENDS_AT_ONCE);
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:1"));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  TellEnds(wire::ENDS_AT_ONCE);
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "nothing has ended";
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:2"));
  TellEnds(wire::ENDS_TOGETHER);
  EndOne();
  TellEnds(static_cast<wire::EndsTold>(77));
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:3")) << "a value of a newer client";
}

TEST_F(NodesTest, ANodeThatIsLookedForIsToldAtOnceWithAllThatHasEnded) {
  LookFor(2);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:2"));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "the look has ended";
  LookFor(3);
  EXPECT_THAT(ToldAfter(milliseconds(0)), ElementsAre("1:3")) << "it has ended before";
}

TEST_F(NodesTest, TheLastLookCountsAndOneForWhatWasToldChangesNothing) {
  LookFor(1);
  LookFor(3);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "another one is looked for";
  EndOne();
  LookFor(0);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty()) << "none is looked for";
  EXPECT_THAT(ToldAfter(milliseconds(10)), ElementsAre("1:3"));
  for (const uint64_t number : {uint64_t{3}, uint64_t{1000}, ~uint64_t{0}}) {
    LookFor(number);
    EndOne();
    EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  }
}

TEST_F(NodesTest, ASessionThatAskedForNoEndsIsToldNoneWhateverItSays) {
  for (const wire::EndsTold when : {wire::ENDS_TOGETHER, wire::ENDS_AT_ONCE}) {
    TellEnds(when, SessionId(2));
    nodes_.Refuse(SessionId(2), SomeFailure("refused"));
    EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
    EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  }
}

TEST_F(NodesTest, ASessionThatEndsBeforeItIsToldIsForgotten) {
  TellEnds(wire::ENDS_TOGETHER);
  EndOne();
  EXPECT_THAT(ToldAfter(milliseconds(0)), IsEmpty());
  nodes_.Close(SessionId(1));
  EXPECT_EQ(nodes_.next_deadline(), std::nullopt);
  EXPECT_THAT(ToldAfter(milliseconds(20)), IsEmpty());
}

TEST_F(NodesTest, ACopyCountsAsOftenAsItHasArrays_TM2) {
  const uint64_t first = nodes_.Number(SessionId(1));
  nodes_.Refuse(SessionId(1), SomeFailure("refused"));
  const uint64_t third = nodes_.Number(SessionId(1));
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 2u);
  const Ordinal copy = Add({.numbers = {first, third}}), other = Add();
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 3u);
  for (const uint32_t island : {0, 1}) Done(island, copy);
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 1u);
  for (const uint32_t island : {0, 1}) Done(island, other);
  nodes_.ReportProgress(now_);
  EXPECT_THAT(Told(), ElementsAre("1:4")) << "the third and the fourth are one range";
}

TEST_F(NodesTest, NodesOfAClosedSessionEndOnTheirOwn) {
  const Ordinal ordinal = Add({.upload = UploadId(7)});
  nodes_.Close(SessionId(1));
  Done(0, ordinal, "it fails");
  Done(1, ordinal);
  nodes_.ReportProgress(now_);
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_EQ(nodes_.size(), 0u);
}

TEST_F(NodesTest, AnIslandWithoutItsSchedulerFailsWhatIsOpenThere_ER1) {
  const Ordinal both = Add(), other = Add();
  Done(1, other);
  nodes_.FailIsland(1, *SomeFailure("its scheduler is gone"));
  EXPECT_EQ(MessageOf(1), "its scheduler is gone");
  EXPECT_EQ(MessageOf(2), "");
  EXPECT_FALSE(nodes_.IsOpenOn(both, 1));
  EXPECT_TRUE(nodes_.IsOpenOn(both, 0));
}

TEST_F(NodesTest, ALaunchIsTakenOnce) {
  const Ordinal ordinal = Add({.launched = Program()});
  EXPECT_NE(nodes_.LaunchedBy(ordinal), nullptr);
  EXPECT_NE(nodes_.TakeLaunched(ordinal), nullptr);
  EXPECT_EQ(nodes_.TakeLaunched(ordinal), nullptr);
  EXPECT_EQ(nodes_.LaunchedBy(Ordinal(99)), nullptr);
}

TEST_F(NodesTest, ANodeOfSeveralCountsAsSoMany_TM2) {
  const Ordinal ordinal = Add({.put_cost = 100,
                               .numbers = {nodes_.Number(SessionId(1)), nodes_.Number(SessionId(1)),
                                           nodes_.Number(SessionId(1))}});
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 3u);
  EXPECT_EQ(nodes_.PutCostOf(SessionId(1)), 100u);
  EXPECT_EQ(nodes_.CheckRoom(SessionId(1)), nullptr);
  const Ordinal next = Add();
  EXPECT_NE(nodes_.CheckRoom(SessionId(1)), nullptr);
  for (const uint32_t island : {0, 1}) Done(island, next);
  nodes_.ReportProgress(now_);
  auto told = outbox_.Take().to_clients;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.progress().nodes(0).first(), 4u);
  for (const uint32_t island : {0, 1}) Done(island, ordinal, "it fails");
  nodes_.ReportProgress(now_);
  told = outbox_.Take().to_clients;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.progress().ended(), 4u);
  EXPECT_EQ(told[0].second.progress().nodes(0).first(), 1u);
  EXPECT_EQ(told[0].second.progress().nodes(0).count(), 3u);
  EXPECT_EQ(nodes_.PendingOf(SessionId(1)), 0u);
  EXPECT_EQ(nodes_.PutCostOf(SessionId(1)), 0u);
}

}  // namespace
}  // namespace gangway::controller
