// Work that holds devices of others for too long, launches that run alone, and what a dead worker had on its devices.
#include <gmock/gmock.h>

#include <optional>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kOther = 8;

class OrphansTest : public IslandTest {
 protected:
  struct Kind {
    uint64_t session = kSession;
    bool alone = false;
  };
  void SetUp() override {
    Make();
    for (uint64_t device : {0, 1, 2}) {
      Have(50 + device, {static_cast<uint32_t>(device)});
      LoadFor(1 + device, {static_cast<uint32_t>(device)}, false);  // executable 1 on device 0 ...
    }
    LoadFor(9, {0}, true);  // calls its client
  }
  void LoadFor(uint64_t id, const Devices& devices, bool calls_host) {
    wire::IslandItem item;
    wire::Load* load = item.mutable_load();
    load->set_executable(id);
    load->set_name("step");
    load->set_client("train.py");
    load->add_parameters()->set_shard_bytes(kBytes);
    load->add_results()->set_shard_bytes(kBytes);
    load->set_calls_host(calls_host);
    load->mutable_devices()->Add(devices.begin(), devices.end());
    Item(item);
  }
  void LaunchFor(uint64_t ordinal, uint64_t executable, Kind kind) {
    wire::IslandItem item = NodeItem(ordinal, kind.session);
    wire::Launch* launch = item.mutable_node()->mutable_launch();
    launch->set_executable(executable);
    Refer(launch->add_arguments(), executable == 9 ? 50 : 49 + executable, 1);
    launch->add_results(1000 + ordinal);
    launch->set_alone(kind.alone);
    Item(item);
  }
  void EndSession(uint64_t session) {
    wire::IslandItem item;
    item.mutable_end_session()->set_session(session);
    Item(item);
  }
  // The reason for which the last step told the worker to end; nothing: it did not.
  std::optional<std::string> Ended(uint32_t worker) const {
    for (const auto& [to, item] : ByWorker(actions_))
      if (to == worker && item.has_end_worker()) return item.end_worker().message();
    return std::nullopt;
  }
  // Ticks each 250 ms; whether worker 0 was told to end in that time.
  std::optional<std::string> EndedWithin(milliseconds time) {
    std::optional<std::string> ended;
    for (milliseconds passed{0}; passed < time && !ended; passed += milliseconds(250)) {
      Tick(milliseconds(250));
      ended = Ended(0);
    }
    return ended;
  }
  // A heartbeat of worker 0, whose device 0 waits in a callback of the gang.
  void Held(uint64_t gang) {
    WorkerBeat event{0, Incarnation(incarnations_[0]), {}, {}};
    event.beat.add_held()->set_gang(gang);
    Step(std::move(event));
  }
  // What the last step told the controller of a worker that is gone.
  wire::WorkerState Lost() const {
    for (const wire::Report& report : actions_.to_controller)
      if (report.has_worker_state() && !report.worker_state().up()) return report.worker_state();
    ADD_FAILURE() << "no worker is gone";
    return {};
  }
  void Crash(uint32_t worker) {
    Step(WorkerDown{.worker = worker,
                    .incarnation = Incarnation(incarnations_[worker]),
                    .why = wire::MakeFailure(absl::StatusCode::kUnavailable, "its link closed"),
                    .crashed = true});
  }
};

// --- Orphans ---

TEST_F(OrphansTest, WorkOfAnEndedSessionEndsItsWorkerAfterTheLimit) {
  LaunchFor(10, 1, {.session = kSession});
  LaunchFor(11, 1, {.session = kOther});
  EndSession(kSession);
  EXPECT_EQ(EndedWithin(milliseconds(9500)), std::nullopt);
  const auto why = EndedWithin(milliseconds(1000));
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(*why,
              AllOf(HasSubstr("program step of session 7 (train.py)"), HasSubstr("device 0")));
  EXPECT_THAT(actions_.notices, ElementsAre(HasSubstr("island0/worker0 is told to end")));
  EXPECT_EQ(EndedWithin(milliseconds(2000)), std::nullopt) << "told once";
  Down(0);
  EXPECT_EQ(Lost().ended_for(), 10u);
  Up(0, 12);
  Down(0);
  EXPECT_FALSE(Lost().has_ended_for()) << "the next one was not told";
}

TEST_F(OrphansTest, WorkThatEndsInTimeEndsNoWorker) {
  LaunchFor(10, 1, {});
  EndSession(kSession);
  EXPECT_EQ(EndedWithin(milliseconds(9000)), std::nullopt);
  Done(0, 10);
  EXPECT_EQ(EndedWithin(milliseconds(20000)), std::nullopt);
  EXPECT_EQ(island_->next_deadline(), std::nullopt);
}

TEST_F(OrphansTest, BehindOthersAnOrphanHoldsNothing) {
  LaunchFor(10, 1, {.session = kOther});
  LaunchFor(11, 1, {.session = kSession});
  EndSession(kSession);
  EXPECT_EQ(EndedWithin(milliseconds(60000)), std::nullopt);
  Done(0, 10);
  EXPECT_EQ(EndedWithin(milliseconds(9500)), std::nullopt) << "its time begins now";
  EXPECT_NE(EndedWithin(milliseconds(1000)), std::nullopt);
}

// --- Host callbacks ---

TEST_F(OrphansTest, CallbacksMayHoldADeviceThatOthersWaitForOnlyForALimit) {
  LaunchFor(10, 9, {.session = kSession});
  LaunchFor(11, 1, {.session = kOther});
  for (int beat = 0; beat <= 240; ++beat) {
    EXPECT_EQ(SentCancels(0), 0) << beat;
    now_ += milliseconds(500);
    Held(10);
  }
  EXPECT_EQ(SentCancels(0), 1);
  EXPECT_THAT(actions_.notices,
              ElementsAre(AllOf(HasSubstr("session 7 (train.py)"), HasSubstr("120000 ms"))));
  EXPECT_EQ(EndedWithin(milliseconds(9500)), std::nullopt);
  EXPECT_NE(EndedWithin(milliseconds(1000)), std::nullopt) << "the runtime does not end it";
}

TEST_F(OrphansTest, AllThatSuchASessionHasThereIsAbortedAndItsNextGangSoon) {
  Make(/*budget_bytes=*/0, /*window=*/2);
  Have(50, {0});
  LoadFor(1, {0}, false);
  LoadFor(9, {0}, true);
  for (uint64_t ordinal : {10, 11, 12}) LaunchFor(ordinal, 9, {.session = kSession});
  LaunchFor(13, 1, {.session = kOther});
  EXPECT_EQ(TakeReleased(), (Ordinals{10, 11}));
  for (int beat = 0; beat < 240; ++beat, now_ += milliseconds(500)) Held(10);
  EXPECT_FALSE(done_.contains(12));
  Held(10);
  EXPECT_EQ(done_.at(12).code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(SentCancels(0), 3);
  Done(0, 10);
  Done(0, 11);
  EXPECT_EQ(done_.at(11).code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(TakeReleased(), Ordinals{13});
  Done(0, 13);
  LaunchFor(14, 9, {.session = kSession});
  LaunchFor(15, 1, {.session = kOther});
  Held(14);
  EXPECT_EQ(SentCancels(0), 1);
}

TEST_F(OrphansTest, CallbacksOfOneWhoIsAloneOrReturnsInTimeHaveNoLimit) {
  LaunchFor(10, 9, {.session = kSession});
  LaunchFor(11, 1, {.session = kSession});
  for (int beat = 0; beat < 1000; ++beat, now_ += milliseconds(500)) Held(10);
  EXPECT_EQ(SentCancels(0), 0) << "no other session waits";
  LaunchFor(12, 1, {.session = kOther});
  for (int beat = 0; beat < 1000; ++beat) {  // each second one in three
    now_ += milliseconds(beat % 2 == 0 ? 500 : 2500);
    Held(10);
    EXPECT_EQ(SentCancels(0), 0) << beat;
  }
}

// --- Alone ---

TEST_F(OrphansTest, ALaunchThatRunsAloneWaitsForTheOthersOfItsWorkerAndTheyForIt) {
  LaunchFor(10, 2, {});  // on the worker's other device
  LaunchFor(11, 1, {.alone = true});
  LaunchFor(12, 2, {.session = kOther});
  LaunchFor(13, 3, {});  // on the other worker
  EXPECT_EQ(TakeReleased(), (Ordinals{10, 13}));
  Done(0, 10);
  EXPECT_EQ(TakeReleased(), Ordinals{11});
  Done(0, 11);
  EXPECT_EQ(TakeReleased(), Ordinals{12});
  Done(0, 12);
  Done(1, 13);
  LaunchFor(14, 1, {.alone = true});
  EXPECT_EQ(TakeReleased(), Ordinals{14}) << "the worker is idle";
}

TEST_F(OrphansTest, WhatACallbackMayWaitForDoesNotWaitToRunAlone) {
  LaunchFor(10, 9, {});
  LaunchFor(11, 2, {.alone = true});
  EXPECT_EQ(TakeReleased(), (Ordinals{10, 11}));
  Done(0, 10);
  Done(0, 11);
  LaunchFor(12, 9, {.alone = true});
  LaunchFor(13, 2, {});
  EXPECT_EQ(TakeReleased(), (Ordinals{12, 13}));
}

TEST_F(OrphansTest, ALaunchThatRunsAloneEndsWithItsWorker) {
  LaunchFor(10, 1, {.alone = true});
  LaunchFor(11, 2, {});
  Crash(0);
  Up(0, 12);
  LaunchFor(12, 3, {.alone = true});
  EXPECT_EQ(TakeReleased(), (Ordinals{10, 12}));
  Have(60, {1});
  wire::IslandItem item = NodeItem(13);
  item.mutable_node()->mutable_launch()->set_executable(2);
  Refer(item.mutable_node()->mutable_launch()->add_arguments(), 60, 1);
  item.mutable_node()->mutable_launch()->add_results(61);
  Item(item);
  EXPECT_EQ(TakeReleased(), Ordinals{13});
}

// --- Blame ---

TEST_F(OrphansTest, ACrashNamesWhatWasOnTheDevicesAndItsOwner) {
  LaunchFor(10, 1, {.session = kSession});
  LaunchFor(11, 2, {.session = kOther});
  LaunchFor(12, 3, {});
  Crash(0);
  const wire::WorkerState state = Lost();
  EXPECT_THAT(state.gangs(), ElementsAre(10, 11));
  EXPECT_FALSE(state.has_ended_for());
  EXPECT_THAT(state.failure().message(),
              AllOf(HasSubstr("session 7 (train.py)"), HasSubstr("session 8 (train.py)")));
  EXPECT_FALSE(done_.contains(12));
}

TEST_F(OrphansTest, AWorkerThatEndedOtherwiseBlamesNoProgram) {
  LaunchFor(10, 1, {});
  Down(0);
  for (const wire::Report& report : actions_.to_controller)
    EXPECT_THAT(report.worker_state().gangs(), IsEmpty());
}

}  // namespace
}  // namespace gangway::scheduler
