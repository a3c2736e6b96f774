// Tests of HostCallbacks: order, patience with one that does not return, and the end.
#include "gangway/client/host_callbacks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace gangway::client {
namespace {

constexpr std::chrono::seconds kLimit{20};

class HostCallbacksTest : public testing::Test {
 protected:
  void Add(uint64_t function, uint32_t depth = 1) {
    wire::HostCallback callback;
    callback.set_callback(function);
    callback.set_depth(depth);
    callback.set_call(function);
    callbacks_->Add(std::move(callback), [state = state_](wire::HostCallbackReply reply) {
      MutexLock lock(state->mutex);
      state->replies.push_back(std::move(reply));
      state->changed.NotifyAll();
    });
  }

  std::vector<wire::HostCallbackReply> Replies(size_t count) {
    MutexLock lock(state_->mutex);
    state_->changed.WaitFor(state_->mutex, kLimit, [this, count]() GANGWAY_NO_ANALYSIS {
      return state_->replies.size() >= count;
    });
    return state_->replies;
  }

  // Shared with threads that are left alone.
  struct State {
    Mutex mutex;
    CondVar changed;
    std::vector<wire::HostCallbackReply> replies GANGWAY_GUARDED_BY(mutex);
    bool open GANGWAY_GUARDED_BY(mutex) = false;

    void Open() {
      MutexLock lock(mutex);
      open = true;
      changed.NotifyAll();
    }
    void WaitOpen() {
      MutexLock lock(mutex);
      changed.WaitFor(mutex, kLimit, [this]() GANGWAY_NO_ANALYSIS { return open; });
    }
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::unique_ptr<HostCallbacks> callbacks_ = std::make_unique<HostCallbacks>();
};

TEST_F(HostCallbacksTest, TheirThreadsKnowHowDeepTheyAre) {
  callbacks_->Serve([](uint64_t, std::span<const std::string_view>) {
    return std::vector<std::string>{std::to_string(HostCallbacks::Depth())};
  });
  Add(1, 3);
  ASSERT_EQ(Replies(1).size(), 1u);
  EXPECT_EQ(Replies(1)[0].results(0), "3");
  EXPECT_EQ(HostCallbacks::Depth(), 0u) << "outside of one";
}

TEST_F(HostCallbacksTest, TheyRunInTheirOrder) {
  callbacks_->Serve(
      [](uint64_t, std::span<const std::string_view>) { return std::vector<std::string>{"r"}; });
  for (uint64_t i = 1; i <= 100; ++i) Add(i);
  const auto replies = Replies(100);
  ASSERT_EQ(replies.size(), 100);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(replies[i].call(), i + 1);
  EXPECT_EQ(replies[0].results(0), "r");
}

TEST_F(HostCallbacksTest, FunctionZeroIsToldOfWorkersInItsTurn) {
  callbacks_->TellOfWorkers();  // there are no functions yet
  callbacks_->Serve([calls = std::make_shared<std::atomic<int>>(0)](
                        uint64_t function, std::span<const std::string_view>) {
    if (function == 0) ++*calls;
    return std::vector<std::string>{std::to_string(*calls)};
  });
  callbacks_->TellOfWorkers();
  Add(1);
  callbacks_->TellOfWorkers();
  callbacks_->TellOfWorkers();
  Add(2);
  const auto replies = Replies(2);
  ASSERT_EQ(replies.size(), 2);
  EXPECT_EQ(replies[0].results(0), "1");
  EXPECT_EQ(replies[1].results(0), "3");
}

TEST_F(HostCallbacksTest, WithoutFunctionsTheyFail) {
  Add(1);
  const auto replies = Replies(1);
  ASSERT_EQ(replies.size(), 1);
  EXPECT_EQ(replies[0].failure().code(), static_cast<int>(absl::StatusCode::kUnimplemented));
}

TEST_F(HostCallbacksTest, OneThatWaitsForALaterOneDoesNotHoldIt) {
  callbacks_->Serve([state = state_](uint64_t function, std::span<const std::string_view>) {
    function == 1 ? state->WaitOpen() : state->Open();
    return std::vector<std::string>{};
  });
  Add(1);
  Add(2);
  EXPECT_EQ(Replies(2).size(), 2);
}

TEST_F(HostCallbacksTest, TheEndDoesNotWaitForOneThatHangs) {
  callbacks_->Serve([state = state_](uint64_t, std::span<const std::string_view>) {
    state->WaitOpen();
    return std::vector<std::string>{};
  });
  Add(1);
  const auto began = Clock::now();
  callbacks_.reset();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  state_->Open();
}

}  // namespace
}  // namespace gangway::client
