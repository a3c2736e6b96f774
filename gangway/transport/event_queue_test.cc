// EventQueue: which events of a link are delivered, in which order, and when its callbacks are released.
#include "gangway/transport/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"

namespace gangway::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Runs what was posted when the test says so.
class ManualExecutor final : public Executor {
 public:
  void Post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void Run() {
    while (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  size_t posted() const { return tasks_.size(); }

 private:
  std::deque<std::function<void()>> tasks_;
};

class EventQueueTest : public ::testing::Test {
 protected:
  void Start() {
    LinkEvents events;
    events.executor = &executor_;
    events.on_frame = [this, held = held_](const wire::Frame& frame) {
      heard_.push_back("frame " + std::to_string(frame.sequence()));
      if (during_frame_) std::exchange(during_frame_, nullptr)();
    };
    events.on_writable = [this] { heard_.emplace_back("writable"); };
    events.on_closed = [this](const absl::Status& why) {
      heard_.push_back("closed " + std::string(why.message()));
    };
    queue_->Start(std::move(events));
    held_.reset();
  }
  bool Push(uint64_t number, size_t bytes = 1) {
    wire::Frame frame;
    frame.set_sequence(number);
    return queue_->Push(std::move(frame), bytes);
  }
  bool are_released() const { return holder_.expired(); }

  ManualExecutor executor_;
  std::vector<std::string> heard_;
  std::function<void()> during_frame_;
  std::shared_ptr<int> held_ = std::make_shared<int>();  // by the callbacks
  const std::weak_ptr<int> holder_ = held_;
  int fallen_ = 0;
  const std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>([this] { ++fallen_; });
};

TEST_F(EventQueueTest, WhatCameBeforeTheStartIsDeliveredFirst) {
  EXPECT_TRUE(Push(1));
  EXPECT_EQ(executor_.posted(), 0u);
  Start();
  EXPECT_TRUE(Push(2));
  EXPECT_EQ(executor_.posted(), 1u) << "one task delivers all";
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("frame 1", "frame 2"));
  EXPECT_TRUE(Push(3));
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("frame 1", "frame 2", "frame 3"));
  EXPECT_FALSE(are_released());
}

TEST_F(EventQueueTest, TheEndIsTheLastEventAndIsToldOnce) {
  Start();
  Push(1);
  queue_->PushWritable();
  queue_->Finish(absl::UnavailableError("reset"));
  queue_->Finish(absl::UnavailableError("again"));
  EXPECT_FALSE(Push(2));
  queue_->PushWritable();
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("frame 1", "closed reset")) << "an ended link takes nothing";
  EXPECT_TRUE(are_released());
  EXPECT_EQ(queue_->end().message(), "reset");
  queue_->Mute();
  EXPECT_EQ(executor_.posted(), 0u);
}

TEST_F(EventQueueTest, AnEndBeforeTheStartIsTold) {
  queue_->Finish(absl::UnavailableError("reset"));
  EXPECT_EQ(executor_.posted(), 0u);
  Start();
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("closed reset"));
  EXPECT_TRUE(are_released());
}

TEST_F(EventQueueTest, AnEndThatComesDuringAnEventIsTold) {
  Start();
  Push(1);
  during_frame_ = [this] { queue_->Finish(absl::UnavailableError("reset")); };
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("frame 1", "closed reset"));
}

TEST_F(EventQueueTest, AMutedLinkHasNoMoreEventsAndReleasesItsCallbacks) {
  Start();
  Push(1);
  Push(2);
  during_frame_ = [this] { queue_->Mute(); };
  executor_.Run();
  EXPECT_THAT(heard_, ElementsAre("frame 1")) << "not even its end is told";
  EXPECT_TRUE(are_released());
  EXPECT_EQ(queue_->pending_bytes(), 0u);
  EXPECT_FALSE(queue_->end().ok());
}

TEST_F(EventQueueTest, AnIdleLinkThatIsMutedReleasesItsCallbacksOnTheExecutor) {
  Start();
  executor_.Run();
  queue_->Mute();
  EXPECT_FALSE(are_released());
  executor_.Run();
  EXPECT_TRUE(are_released());
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(EventQueueTest, TheFallOfWhatIsPendingIsToldOnce) {
  Start();
  Push(1, 10);
  Push(2, 10);
  queue_->NotifyBelow(15);
  EXPECT_EQ(fallen_, 0);
  executor_.Run();
  EXPECT_EQ(fallen_, 1);
  Push(3, 10);
  executor_.Run();
  EXPECT_EQ(fallen_, 1);
  queue_->NotifyBelow(15);
  EXPECT_EQ(fallen_, 2) << "at once, where it has fallen";
}

}  // namespace
}  // namespace gangway::transport
