// Waits of a session: which thread reads the answers, over unix sockets and over another transport.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gangway/client/array_literal.h"
#include "gangway/client/scripted_cluster.h"

namespace gangway::client {
namespace {

using std::chrono::milliseconds;

// What a thread heard that awaited an array.
struct Heard {
  std::optional<absl::Status> status;  // null: nothing within the limit
  std::thread::id on;                  // the thread that ran the callback
};

class SessionWaitTest : public ::testing::TestWithParam<ScriptedCluster::Over> {
 protected:
  void SetUp() override {
    auto client = Connect(cluster_.Options());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Awaits `array` on the calling thread.
  Heard AwaitArray(ArrayHandle array) {
    const std::shared_ptr<Wait> wait = client_->NewWait();
    const auto heard = std::make_shared<Heard>();
    client_->Await(std::array{array}, [this, wait, heard](const absl::Status& status) {
      EXPECT_FALSE(in_callback_.exchange(true)) << "callbacks run one at a time";
      *heard = {status, std::this_thread::get_id()};
      in_callback_ = false;
      wait->End();
    });
    if (!wait->For(kLimit)) return {};
    return *heard;
  }

  // Answers what the client has asked last, as its `count`th await.
  void Answer(size_t count) {
    const wire::Op op = cluster_.controller().Ops(count).at(count - 1);
    wire::SessionEvent event;
    event.mutable_await_done()->set_await(op.await().await());
    cluster_.controller().SendEvent(std::move(event));
  }

  ScriptedCluster cluster_{GetParam()};
  std::atomic<bool> in_callback_ = false;
  std::unique_ptr<Client> client_;  // ends before the cluster
};

// The loop's own thread reads what comes before the other waits, and while it is about to hand over.
TEST_P(SessionWaitTest, OverASocketTheThreadThatWaitsReadsTheAnswer) {
  constexpr size_t kAwaits = 200;
  size_t on_waiter = 0;
  std::jthread script([&] {
    for (size_t i = 0; i < kAwaits; ++i) {
      const Heard heard = AwaitArray(1_array);
      ASSERT_TRUE(heard.status && heard.status->ok());
      if (heard.on == std::this_thread::get_id()) ++on_waiter;
    }
  });
  for (size_t i = 0; i < kAwaits; ++i) Answer(i + 1);
  script.join();
  if (GetParam() == ScriptedCluster::Over::kUnixSockets) {
    EXPECT_GT(on_waiter, 0u);
  } else {
    EXPECT_EQ(on_waiter, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, SessionWaitTest,
                         ::testing::Values(ScriptedCluster::Over::kUnixSockets,
                                           ScriptedCluster::Over::kThisProcess));

class OverSocketsTest : public SessionWaitTest {};

// One reads, and the other's answer comes first.
TEST_P(OverSocketsTest, TwoThreadsWaitAtOnce) {
  for (size_t round = 0; round < 20; ++round) {
    std::vector<std::jthread> threads;
    std::atomic<int> good = 0;
    for (size_t number : {1, 2}) {
      threads.emplace_back([&, number] {
        const Heard heard = AwaitArray(ArrayHandle(number));
        if (heard.status && heard.status->ok()) ++good;
      });
      cluster_.controller().Ops(2 * round + number);
    }
    Answer(2 * round + 2);
    threads.back().join();
    EXPECT_EQ(good, 1);
    Answer(2 * round + 1);
    threads.front().join();
    EXPECT_EQ(good, 2);
  }
}

TEST_P(OverSocketsTest, AThreadThatReadsLearnsOfTheControllersLoss) {
  std::vector<std::jthread> threads;
  std::atomic<int> lost = 0;
  for (ArrayHandle array : {1_array, 2_array, 3_array}) {
    threads.emplace_back([&, array] {
      const Heard heard = AwaitArray(array);
      if (heard.status && absl::IsUnavailable(*heard.status)) ++lost;
    });
  }
  cluster_.controller().Ops(3);
  cluster_.controller().Cut();
  threads.clear();
  EXPECT_EQ(lost, 3);
}

TEST_P(OverSocketsTest, AForkedChildDoesNotWaitAndItsParentGoesOn) {
  std::optional<Heard> heard;
  std::jthread waiting([&] { heard = AwaitArray(1_array); });
  cluster_.controller().Ops(1);
  const pid_t child = fork();
  if (child == 0) {
    const std::shared_ptr<Wait> wait = client_->NewWait();
    bool refused = false;
    client_->Await(std::array{2_array},
                   [&](const absl::Status& status) { refused = absl::IsUnavailable(status); });
    _exit(refused && !wait->For(std::chrono::hours(1)) ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Answer(1);
  waiting.join();
  ASSERT_TRUE(heard && heard->status);
  EXPECT_TRUE(heard->status->ok());
}

TEST_P(OverSocketsTest, AWaitHasALimitAndMayEndOnAnyThread) {
  const std::shared_ptr<Wait> wait = client_->NewWait();
  EXPECT_FALSE(wait->For(milliseconds(5)));
  std::jthread ends([wait] { wait->End(); });
  EXPECT_TRUE(wait->For(kLimit));
  client_.reset();
  wait->End();
}

// A callback that waits would wait for itself.
TEST_P(OverSocketsTest, ACallbackDoesNotWait) {
  Arrival<bool> ended;
  client_->Await(std::array{1_array}, [&](const absl::Status&) {
    ended.Set(client_->NewWait()->For(std::chrono::hours(1)));
  });
  Answer(1);
  EXPECT_FALSE(ended.Get());
}

INSTANTIATE_TEST_SUITE_P(Sockets, OverSocketsTest,
                         ::testing::Values(ScriptedCluster::Over::kUnixSockets));

}  // namespace
}  // namespace gangway::client
