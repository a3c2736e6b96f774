// Nodes whose workers get them only after the nodes that make what they read (wire::Dispatch).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DispatchTest : public IslandTest {
 protected:
  void SetUp() override {
    Make();
    Load(1, {0});
    Load(2, {2});
    Have(50, {0});
  }
  void LaunchAfter(wire::Dispatch dispatch, uint64_t ordinal, uint64_t executable,
                   uint64_t argument, uint64_t result, bool donate = false, uint32_t shards = 1) {
    wire::IslandItem item = NodeItem(ordinal);
    item.mutable_node()->set_dispatch(dispatch);
    wire::Launch* launch = item.mutable_node()->mutable_launch();
    launch->set_executable(executable);
    Refer(launch->add_arguments(), argument, shards);
    launch->add_results(result);
    if (donate) launch->add_donated(0);
    Item(item);
  }
  // The worker has given the launch to its devices.
  void Enqueued(uint32_t worker, uint64_t ordinal) {
    FromWorker event{worker, Incarnation(incarnations_[worker]), {}};
    event.batch.add_reports()->mutable_released()->add_ordinals(ordinal);
    Step(std::move(event));
  }
  // The nodes that the step has sent to the workers.
  Ordinals Sent() const {
    Ordinals sent;
    for (const auto& [worker, item] : ByWorker(actions_))
      if (item.has_node()) sent.push_back(item.node().ordinal());
    return sent;
  }
};

TEST_F(DispatchTest, ALaunchIsSentOnceThatWhichMakesItsInputIsOnItsDevices) {
  Upload(1, 51, {0});
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 2, 1, 51, 52);
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 3, 1, 52, 53);
  EXPECT_THAT(Sent(), IsEmpty());
  released_.clear();
  Done(0, 1);  // an upload must have ended
  EXPECT_THAT(Sent(), ElementsAre(2));
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  Enqueued(0, 2);
  EXPECT_THAT(Sent(), ElementsAre(3)) << "2 has not ended";
  EXPECT_THAT(TakeReleased(), ElementsAre(3));
  Enqueued(0, 3);
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 4, 1, 53, 54);
  EXPECT_THAT(Sent(), ElementsAre(4));
}

TEST_F(DispatchTest, ACopyIsSentWithTheLaunchThatReadsIt) {
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 1, 1, 50, 51);
  Copy(2, 51, {0}, 52, {2}, wire::DISPATCH_AFTER_RELEASE);
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 3, 2, 52, 53);
  EXPECT_THAT(Sent(), IsEmpty());
  Enqueued(0, 1);
  EXPECT_THAT(Sent(), ElementsAre(2, 2, 3)) << "the copy to both workers";
}

TEST_F(DispatchTest, AGangIsOnItsDevicesOnceAllWorkersSaySo) {
  Load(3, {0, 2});
  Have(60, {0, 2});
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 1, 3, 60, 61, false, 2);
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 2, 3, 61, 62, false, 2);
  Enqueued(0, 1);
  EXPECT_THAT(Sent(), IsEmpty());
  Enqueued(1, 1);
  EXPECT_THAT(Sent(), ElementsAre(2, 2));
}

TEST_F(DispatchTest, ALaunchThatFailsBeforeItIsOnItsDevicesFailsItsReaders_ER2) {
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 1, 1, 50, 51);
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 2, 1, 51, 52);
  const wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInternal, "it broke");
  Done(0, 1, &failure);
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_EQ(done_.at(2).message(), "it broke");
}

TEST_F(DispatchTest, ANodeIsSentOnceWhatMakesItsInputHasEnded) {
  Launch(1, 1, 50, 1, 51);
  LaunchAfter(wire::DISPATCH_AFTER_END, 2, 1, 51, 52);
  EXPECT_THAT(Sent(), IsEmpty()) << "1 is released, and runs";
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_THAT(Sent(), ElementsAre(2));
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  LaunchAfter(wire::DISPATCH_AFTER_END, 3, 1, 51, 53);
  EXPECT_THAT(Sent(), ElementsAre(3)) << "it waits for nothing";
}

TEST_F(DispatchTest, ReadersOfAnUnsentNodeAreUnsentToo) {
  Launch(1, 1, 50, 1, 51);
  LaunchAfter(wire::DISPATCH_AFTER_END, 2, 1, 51, 52);
  Launch(3, 1, 52, 1, 53);
  EXPECT_THAT(Sent(), IsEmpty()) << "its worker would not know the input";
  Launch(4, 1, 51, 1, 54, /*donate=*/true);
  EXPECT_THAT(Sent(), IsEmpty()) << "its worker would hear of the donation before the reader";
  released_.clear();
  Done(0, 1);
  EXPECT_THAT(Sent(), ElementsAre(2, 3, 4));
  EXPECT_THAT(TakeReleased(), ElementsAre(2, 3, 4));
}

TEST_F(DispatchTest, AFailedInputFailsANodeThatWasNotSent_ER2) {
  Launch(1, 1, 50, 1, 51);
  LaunchAfter(wire::DISPATCH_AFTER_END, 2, 1, 51, 52);
  LaunchAfter(wire::DISPATCH_AFTER_END, 3, 1, 52, 53);
  const wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInternal, "it broke");
  Done(0, 1, &failure);
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_EQ(SentCancels(0), 0) << "its workers do not know it";
  EXPECT_EQ(done_.at(2).message(), "it broke");
  EXPECT_EQ(done_.at(3).message(), "it broke");
}

TEST_F(DispatchTest, ANodeWhoseWorkerIsDownByThenWaitsForTheNext_TM1) {
  Launch(1, 1, 50, 1, 51);
  Copy(2, 51, {0}, 52, {2});
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 3, 2, 52, 53);
  EXPECT_THAT(Sent(), ElementsAre(3));
  Upload(4, 60, {0});
  Copy(5, 60, {0}, 61, {2});
  LaunchAfter(wire::DISPATCH_AFTER_RELEASE, 6, 2, 61, 62);
  Have(70, {2});
  LaunchAfter(wire::DISPATCH_AFTER_END, 7, 2, 53, 71);
  Tick(milliseconds(60000));  // its wait for a worker has not begun
  Done(0, 1);
  Done(0, 2);
  Done(1, 2);
  Down(1);
  EXPECT_NE(done_.at(3).code(), 0);
  EXPECT_NE(done_.at(7).code(), 0) << "what it would read is lost";
}

TEST_F(DispatchTest, ManyNodesCostNoMoreEach) {
  constexpr uint64_t kCount = 10000;
  Launch(1, 1, 50, 1, 100);
  for (uint64_t i = 0; i < kCount; ++i)
    LaunchAfter(wire::DISPATCH_AFTER_END, 2 + i, 1, 100 + i, 101 + i);
  EXPECT_THAT(Sent(), IsEmpty());
  for (uint64_t i = 0; i < kCount; ++i) {
    Done(0, 1 + i);
    ASSERT_THAT(Sent(), ElementsAre(2 + i));
  }
}

TEST_F(DispatchTest, ASessionsEndTakesNodesThatWereNotSent_OB2) {
  Launch(1, 1, 50, 1, 51);
  LaunchAfter(wire::DISPATCH_AFTER_END, 2, 1, 51, 52);
  wire::IslandItem item;
  item.mutable_end_session()->set_session(kSession);
  Item(item);
  EXPECT_NE(done_.at(2).code(), 0);
  Done(0, 1);
  EXPECT_THAT(Sent(), IsEmpty());
}

}  // namespace
}  // namespace gangway::scheduler
