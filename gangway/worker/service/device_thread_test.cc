// Tests of device_thread.h: the order of tasks, and the gate for gangs with collectives.
#include "gangway/worker/service/device_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <vector>

namespace gangway::worker {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using Turn = DeviceThread::Turn;

class DeviceThreadTest : public testing::Test {
 protected:
  ~DeviceThreadTest() override { EXPECT_TRUE(thread_.Stop(InFlight::Clock::now() + seconds(5))); }

  void Post(const std::string& name, Turn turn, std::function<bool()> ready = nullptr) {
    thread_.Post({.run = [this, name] { Note(name); }, .turn = turn, .ready = std::move(ready)});
  }

  // Runs after every task before it that does not wait at the gate.
  std::vector<std::string> Ran() {
    std::promise<void> reached;
    thread_.Post({.run = [&reached] { reached.set_value(); }});
    reached.get_future().wait();
    MutexLock lock(mutex_);
    return ran_;
  }

  void Note(const std::string& name) {
    MutexLock lock(mutex_);
    ran_.push_back(name);
  }

  Mutex mutex_;
  std::vector<std::string> ran_ GANGWAY_GUARDED_BY(mutex_);
  DeviceThread thread_{"device", 4};
};

TEST_F(DeviceThreadTest, TasksRunInOrderWithoutCollectives_GS_1) {
  Post("gang 1", Turn::kGang);
  Post("fetch", Turn::kAny,
       [] { return false; });  // it waits by itself, as producers run before it
  Post("gang 2", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "fetch", "gang 2"));
}

TEST_F(DeviceThreadTest, OneGangWithCollectivesIsInTheDeviceAtATime) {
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("alone 3", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2"));
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "alone 3"));
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, GangsKeepTheirOrderAtTheGate_GS_1) {
  Post("alone 1", Turn::kGangAlone);
  Post("gang 1", Turn::kGang);
  Post("alone 2", Turn::kGangAlone);
  Post("gang 2", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "gang 1"));
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "gang 1", "alone 2", "gang 2"));
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, NoLaterGangPassesOneThatWaits_GS_1) {
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  Post("gang 1", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  Post("gang 2", Turn::kGang);
  Post("alone 3", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "gang 1", "gang 2"));
  thread_.OpenGate();
  EXPECT_EQ(Ran().back(), "alone 3");
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, WhatWaitsAtTheGateDelaysNoFetchOfAnEarlierResult) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("fetch of a result of alone 2", Turn::kAny, [&made] { return made.load(); });
  Post("fetch of an earlier result", Turn::kAny, [] { return true; });
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch of an earlier result"));
  made = true;
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch of an earlier result", "alone 2",
                                 "fetch of a result of alone 2"));
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, AFetchOfAResultIsNotDelayedByGangsThatWaitBehindIt) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("alone 3", Turn::kGangAlone);
  Post("fetch of a result of alone 2", Turn::kAny, [&made] { return made.load(); });
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  made = true;
  thread_.OpenGate();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "fetch of a result of alone 2"));
  thread_.OpenGate();
  EXPECT_EQ(Ran().back(), "alone 3");
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, NoGangPassesAFetchThatWaits) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("fetch", Turn::kAny, [&made] { return made.load(); });
  Post("gang that donates what the fetch reads", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  made = true;
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch", "gang that donates what the fetch reads"));
  thread_.OpenGate();
}

TEST_F(DeviceThreadTest, AStopDropsWhatWaitsAtTheGate) {
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
}

}  // namespace
}  // namespace gangway::worker
