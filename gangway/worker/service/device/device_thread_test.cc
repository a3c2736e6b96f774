// Tests of device_thread.h: the order of tasks, and the gate for gangs with collectives.
#include "gangway/worker/service/device/device_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::worker {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using Turn = DeviceThread::Turn;

class DeviceThreadTest : public testing::Test {
 protected:
  ~DeviceThreadTest() override { EXPECT_TRUE(thread_.Stop(Clock::now() + seconds(5))); }

  void Post(const std::string& name, Turn turn, std::function<bool()> ready = nullptr) {
    thread_.Post({.run = [this, name](const absl::Status&) { Note(name); },
                  .turn = turn,
                  .ready = std::move(ready),
                  .gang = Ordinal(++gangs_)});
  }

  // A gang of kGangAlone with this number.
  void PostAlone(uint64_t gang, uint64_t follows) {
    thread_.Post({.run = [this, gang](const absl::Status&) { Note(absl::StrCat("gang ", gang)); },
                  .turn = Turn::kGangAlone,
                  .gang = Ordinal(gang),
                  .follows = Ordinal(follows)});
  }

  // Runs after every task before it that does not wait at the gate.
  std::vector<std::string> Ran() {
    std::promise<void> reached;
    thread_.Post({.run = [&reached](const absl::Status&) { reached.set_value(); }});
    reached.get_future().wait();
    MutexLock lock(mutex_);
    return ran_;
  }

  // The thread notices the end of its last task a moment later.
  void BorrowSoon() {
    const auto deadline = Clock::now() + seconds(10);
    bool is_lent = false;
    while (!is_lent && Clock::now() < deadline) is_lent = thread_.Borrow();
    ASSERT_TRUE(is_lent);
  }

  void Note(const std::string& name) {
    MutexLock lock(mutex_);
    ran_.push_back(name);
  }

  Mutex mutex_;
  std::vector<std::string> ran_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t gangs_ = 0;
  DeviceThread thread_{"device", 4, std::chrono::minutes(10)};
};

TEST_F(DeviceThreadTest, TasksRunInOrderWithoutCollectives_GS_1) {
  Post("gang 1", Turn::kGang);
  Post("fetch", Turn::kAny,
       [] { return false; });  // it waits by itself, as producers run before it
  Post("gang 2", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "fetch", "gang 2"));
}

TEST(DevicesOnAPool, RunTheirOwnTasksInOrderAndOneAtATime_GS_1) {
  constexpr int kDevices = 8, kTasks = 500;
  DevicePool pool(2);
  std::vector<std::unique_ptr<DeviceThread>> devices;
  std::vector<std::vector<int>> ran(kDevices);
  std::vector<std::atomic<int>> inside(kDevices);
  std::vector<std::promise<void>> ended(kDevices);
  for (int i = 0; i < kDevices; ++i)
    devices.push_back(std::make_unique<DeviceThread>("", 4, std::chrono::minutes(10), &pool));
  for (int task = 0; task < kTasks; ++task) {
    for (int i = 0; i < kDevices; ++i) {
      devices[i]->Post({.run = [&, i, task](const absl::Status&) {
        EXPECT_EQ(inside[i]++, 0);
        ran[i].push_back(task);
        --inside[i];
        if (task + 1 == kTasks) ended[i].set_value();
      }});
    }
  }
  for (int i = 0; i < kDevices; ++i) {
    ended[i].get_future().wait();
    EXPECT_TRUE(devices[i]->Stop(Clock::now() + seconds(5)));
    EXPECT_TRUE(std::is_sorted(ran[i].begin(), ran[i].end()));
    EXPECT_EQ(ran[i].size(), static_cast<size_t>(kTasks));
  }
}

TEST_F(DeviceThreadTest, ItsBacklogIsWhatHasNotBegunAndWhatIsInFlight) {
  std::promise<void> goes_on, has_begun;
  thread_.Post({.run = [&](const absl::Status&) {
    has_begun.set_value();
    goes_on.get_future().wait();
  }});
  has_begun.get_future().wait();
  EXPECT_EQ(thread_.backlog(), 0u);
  Post("gang 1", Turn::kGang);
  Post("gang 2", Turn::kGang);
  EXPECT_EQ(thread_.backlog(), 2u);
  ASSERT_TRUE(thread_.executes()->Begin(Clock::now()));
  EXPECT_EQ(thread_.backlog(), 3u);
  thread_.executes()->End();
  goes_on.set_value();
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "gang 2"));
  EXPECT_EQ(thread_.backlog(), 0u);
}

TEST_F(DeviceThreadTest, OneGangWithCollectivesIsInTheDeviceAtATime) {
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("alone 3", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2"));
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "alone 3"));
  thread_.Leave();
}

TEST_F(DeviceThreadTest, GangsKeepTheirOrderAtTheGate_GS_1) {
  Post("alone 1", Turn::kGangAlone);
  Post("gang 1", Turn::kGang);
  Post("alone 2", Turn::kGangAlone);
  Post("gang 2", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "gang 1"));
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "gang 1", "alone 2", "gang 2"));
  thread_.Leave();
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
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "gang 1", "gang 2"));
  thread_.Leave();
  EXPECT_EQ(Ran().back(), "alone 3");
  thread_.Leave();
}

TEST_F(DeviceThreadTest, WhatWaitsAtTheGateDelaysNoFetchOfAnEarlierResult) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("fetch of a result of alone 2", Turn::kAny, [&made] { return made.load(); });
  Post("fetch of an earlier result", Turn::kAny, [] { return true; });
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch of an earlier result"));
  made = true;
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch of an earlier result", "alone 2",
                                 "fetch of a result of alone 2"));
  thread_.Leave();
}

TEST_F(DeviceThreadTest, AFetchOfAResultIsNotDelayedByGangsThatWaitBehindIt) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  Post("alone 3", Turn::kGangAlone);
  Post("fetch of a result of alone 2", Turn::kAny, [&made] { return made.load(); });
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  made = true;
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "alone 2", "fetch of a result of alone 2"));
  thread_.Leave();
  EXPECT_EQ(Ran().back(), "alone 3");
  thread_.Leave();
}

TEST_F(DeviceThreadTest, NoGangPassesAFetchThatWaits) {
  std::atomic<bool> made = false;
  Post("alone 1", Turn::kGangAlone);
  Post("fetch", Turn::kAny, [&made] { return made.load(); });
  Post("gang that donates what the fetch reads", Turn::kGang);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  made = true;
  EXPECT_THAT(Ran(), ElementsAre("alone 1", "fetch", "gang that donates what the fetch reads"));
  thread_.Leave();
}

TEST_F(DeviceThreadTest, AGangThatReadsTheResultsOfTheLastOneEntersAtOnce) {
  PostAlone(1, 0);
  PostAlone(2, 1);
  PostAlone(3, 2);
  PostAlone(4, 2);  // gang 3 would be in progress with it
  PostAlone(5, 4);
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "gang 2", "gang 3"));
  thread_.Leave();
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "gang 2", "gang 3"));
  thread_.Leave();
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "gang 2", "gang 3", "gang 4", "gang 5"));
}

TEST_F(DeviceThreadTest, AFetchThatWaitsAtTheGateRunsWhenItsInputIsSettledElsewhere) {
  std::atomic<bool> uploaded = false;
  std::promise<void> ran;
  Post("alone 1", Turn::kGangAlone);
  thread_.Post({.run = [&ran](const absl::Status&) { ran.set_value(); },
                .ready = [&uploaded] { return uploaded.load(); }});
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
  uploaded = true;
  thread_.Recheck();
  EXPECT_EQ(ran.get_future().wait_for(seconds(10)), std::future_status::ready);
}

TEST(DeviceThreadGateTest, AGangWaitsAtTheGateNoLongerThanItsLimit_TM_1) {
  DeviceThread thread("device", 4, std::chrono::milliseconds(50));
  std::promise<absl::Status> first, second, third;
  const auto post = [&thread](uint64_t gang, std::promise<absl::Status>& entry) {
    thread.Post({.run = [&entry](const absl::Status& status) { entry.set_value(status); },
                 .turn = Turn::kGangAlone,
                 .gang = Ordinal(gang)});
  };
  post(17, first);
  post(18, second);
  EXPECT_TRUE(first.get_future().get().ok());
  absl::Status late = second.get_future().get();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), testing::HasSubstr("Gang 17 has not ended"));
  thread.Leave();  // gang 18 has not entered, so it does not leave
  post(19, third);
  EXPECT_TRUE(third.get_future().get().ok());
  EXPECT_TRUE(thread.Stop(Clock::now() + seconds(5)));
}

TEST_F(DeviceThreadTest, ADeviceThatHasWorkIsNotLent_GS_1) {
  std::promise<void> begun, end;
  std::shared_future<void> may_end(end.get_future());
  thread_.Post({.run = [&begun, may_end](const absl::Status&) {
    begun.set_value();
    may_end.wait();
  }});
  begun.get_future().wait();
  EXPECT_FALSE(thread_.Borrow()) << "a task runs";
  Post("gang 1", Turn::kGang);
  EXPECT_FALSE(thread_.Borrow()) << "a task is queued";
  end.set_value();
  EXPECT_THAT(Ran(), ElementsAre("gang 1"));
  BorrowSoon();
  thread_.GiveBack();
  ASSERT_TRUE(thread_.executes()->Begin(Clock::now()));
  EXPECT_FALSE(thread_.Borrow()) << "a program is in flight";
  thread_.executes()->End();
  Post("alone 1", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("gang 1", "alone 1"));
  EXPECT_FALSE(thread_.Borrow()) << "a gang is alone in the device";
  Post("gang that waits at the gate", Turn::kGangAlone);
  EXPECT_FALSE(thread_.Borrow());
  thread_.Leave();
  EXPECT_EQ(Ran().back(), "gang that waits at the gate");
  thread_.Leave();
  BorrowSoon();
  thread_.GiveBack();
}

TEST_F(DeviceThreadTest, TasksWaitWhileTheDeviceIsBorrowed) {
  BorrowSoon();
  EXPECT_FALSE(thread_.Borrow()) << "twice";
  std::promise<void> runs;
  thread_.Post({.run = [&runs](const absl::Status&) { runs.set_value(); }, .turn = Turn::kGang});
  Post("gang 1", Turn::kGang);
  thread_.Recheck();
  EXPECT_EQ(runs.get_future().wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  Note("borrower");
  thread_.GiveBack();
  EXPECT_THAT(Ran(), ElementsAre("borrower", "gang 1"));
}

TEST(DeviceThreadStopTest, ABorrowedDeviceHasNotEnded) {
  DeviceThread thread("device", 4, std::chrono::minutes(10));
  ASSERT_TRUE(thread.Borrow());
  EXPECT_FALSE(thread.Stop(Clock::now() + std::chrono::milliseconds(20)));
  thread.GiveBack();
  EXPECT_TRUE(thread.Stop(Clock::now() + seconds(5)));
  EXPECT_FALSE(thread.Borrow()) << "it has stopped";
}

TEST_F(DeviceThreadTest, AStopDropsWhatWaitsAtTheGate) {
  Post("alone 1", Turn::kGangAlone);
  Post("alone 2", Turn::kGangAlone);
  EXPECT_THAT(Ran(), ElementsAre("alone 1"));
}

}  // namespace
}  // namespace gangway::worker
