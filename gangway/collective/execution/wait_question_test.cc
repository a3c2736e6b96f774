// What a device tells about a member that waits for long, and how the member answers whether it still has to.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/member_test_util.h"

namespace gangway::collective {
namespace {

using xla::Collective;

// Two devices of two workers, and a program of three sums.
class WaitQuestionTest : public ::testing::TestWithParam<Sight> {
 protected:
  WaitQuestionTest() : host_(2, 1, GetParam()) {
    auto table = Table(2, {{0, 1}});
    for (int i = 0; i < 3; ++i) Add(table, Collective::ALL_REDUCE, {{1, 4}});
    plan_ = *Plan::Make(table);
  }

  absl::Status Call(Member& member, uint32_t position, int64_t number) {
    Arrays results = Empty(plan_->at(number));
    return RunOnce(member, number, Inputs(plan_->at(number), position), results);
  }
  // Runs each position's calls, and `meanwhile` beside them; then the launch is aborted.
  std::vector<absl::Status> Run(const std::vector<std::vector<int64_t>>& calls,
                                const std::function<void()>& meanwhile) {
    const auto launches = host_.Begin(plan_);
    auto all = std::async(std::launch::async, [&] {
      return host_.Run(launches, [&](Member& member, uint32_t position) {
        for (int64_t number : calls[position])
          if (auto status = Call(member, position, number); !status.ok()) return status;
        return absl::OkStatus();
      });
    });
    meanwhile();
    for (const auto& launch : launches) launch->Abort(absl::CancelledError("enough"));
    return all.get();
  }
  Waiting AwaitWaiting(uint32_t position) {
    std::optional<Waiting> waiting = host_.local(position).waiting();
    for (; !waiting; waiting = host_.local(position).waiting()) YieldCore();
    return *waiting;
  }
  // Whether the member confirms its wait. If not, it drops the question.
  bool Holds(uint32_t position, const WaitQuestion& question) {
    std::atomic<bool> held = false;
    auto question_is_open = std::make_shared<bool>(true);
    const std::weak_ptr<bool> is_open = question_is_open;
    host_.local(position).Ask(question,
                              [&held, open = std::move(question_is_open)] { held = true; });
    while (!is_open.expired()) YieldCore();
    return held;
  }
  WaitQuestion::Owed OwedTo(uint32_t reader, const Waiting& waiting) {
    return {.deed = *waiting.awaited, .by = PeerNumber(reader, 0)};
  }

  Host host_;
  std::shared_ptr<const Plan> plan_;
};

TEST_P(WaitQuestionTest, MembersInDifferentCollectivesConfirmThatTheyWaitForEachOther) {
  const auto statuses = Run({{0}, {1}}, [&] {
    const Waiting first = AwaitWaiting(0), second = AwaitWaiting(1);
    EXPECT_EQ(first.peer_worker, 1u);
    EXPECT_EQ(first.number, 0u);
    EXPECT_EQ(second.number, 1u);
    EXPECT_EQ(first.is_mirrored, GetParam() == Sight::kMirrored);
    EXPECT_TRUE(Holds(0, {.wait = first.wait, .owed = OwedTo(1, second)}));
    EXPECT_TRUE(Holds(1, {.wait = second.wait, .owed = OwedTo(0, first)}));
    EXPECT_TRUE(Holds(0, {.wait = first.wait})) << "asked again";
  });
  EXPECT_EQ(statuses[0].message(), "enough");
}

TEST_P(WaitQuestionTest, AMemberThatHasSentTheMessageDoesNotConfirm) {
  Run({{0}, {1}}, [&] {
    const Waiting first = AwaitWaiting(0), second = AwaitWaiting(1);
    // As if the message of collective 1 to position 0 were still on its way.
    WaitQuestion::Owed sent = OwedTo(0, first);
    sent.deed.key.number = 1;
    EXPECT_FALSE(Holds(1, {.wait = second.wait, .owed = sent}));
    sent.deed.key.round = 1;
    EXPECT_TRUE(Holds(1, {.wait = second.wait, .owed = sent})) << "a later call";
  });
}

TEST_P(WaitQuestionTest, AMemberThatHasReadTheMessageDoesNotConfirm) {
  Run({{0, 1}, {0, 2}}, [&] {
    Waiting waiting = AwaitWaiting(0);
    while (waiting.number != 1) waiting = AwaitWaiting(0);  // it has read in the first sum
    const uint64_t read = host_.arena(0).region(0).consumed[PeerNumber(1, 0)];
    WaitQuestion::Owed owed{.deed = {.deed = Deed::kRead, .key = waiting.awaited->key}};
    owed.by = PeerNumber(1, 0);
    owed.deed.sequence = read + 1;
    EXPECT_TRUE(Holds(0, {.wait = waiting.wait, .owed = owed})) << "the next message";
    owed.deed.sequence = read;
    EXPECT_FALSE(Holds(0, {.wait = waiting.wait, .owed = owed}));
    owed.deed.sequence = read + 1;
    owed.deed.key.gang -= 1;
    EXPECT_FALSE(Holds(0, {.wait = waiting.wait, .owed = owed})) << "of a gang that it has left";
  });
}

TEST_P(WaitQuestionTest, AMemberThatGoesOnDoesNotConfirmItsFormerWait) {
  const auto launches = host_.Begin(plan_);
  std::atomic<bool> held = false;
  const auto statuses = host_.Run(launches, [&](Member& member, uint32_t position) {
    if (position == 1) {
      const Waiting waiting = AwaitWaiting(0);
      if (auto status = Call(member, 1, 0); !status.ok()) return status;
      while (AwaitWaiting(0).number != 1) YieldCore();
      host_.local(0).Ask({.wait = waiting.wait}, [&] { held = true; });
      return Call(member, 1, 1);
    }
    if (auto status = Call(member, 0, 0); !status.ok()) return status;
    return Call(member, 0, 1);
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(held);
}

INSTANTIATE_TEST_SUITE_P(Sights, WaitQuestionTest,
                         ::testing::Values(Sight::kMapped, Sight::kMirrored), [](const auto& each) {
                           return each.param == Sight::kMapped ? "mapped" : "mirrored";
                         });

TEST(LongWait, IsToldOncePerWaitAndNotBeforeItIsLong) {
  auto arena = *Arena::Create(2);
  auto table = Table(2, {{0, 1}});
  Add(table, Collective::ALL_REDUCE, {{1, 4}});
  const auto plan = *Plan::Make(table);
  const auto peer = std::make_shared<Peer>("worker0", 0, arena);
  const auto devices =
      std::make_shared<const PeerDevices>(std::vector<PeerDevice>{{peer, 0}, {peer, 1}});
  const auto launch = Launch::Begin(plan, devices, GangName{1, 101}, kWaitMax);
  std::atomic<int> told = 0;
  std::promise<Clock::time_point> first;
  const auto on_long_wait = [&](uint64_t gang) {
    EXPECT_EQ(gang, 101u);
    if (told++ == 0) first.set_value(Clock::now());
  };
  const auto device = std::make_shared<LocalDevice>(arena, 0, 0, nullptr, on_long_wait);
  device->Enter(1);
  const auto began = Clock::now();
  auto status = std::async(std::launch::async, [&] {
    Member member(launch, device, 0);
    Arrays results = Empty(plan->at(0));
    return RunOnce(member, 0, Inputs(plan->at(0), 0), results);
  });
  const auto waited = first.get_future().get() - began;
  EXPECT_GE(waited, LocalDevice::kLongWait);
  EXPECT_LT(waited, std::chrono::seconds(5));
  const uint64_t wait = device->waiting()->wait;
  for (int i = 0; i < 3; ++i) {  // it looks again each time
    std::promise<void> looked;
    device->Ask({.wait = wait}, [&] { looked.set_value(); });
    looked.get_future().get();
  }
  EXPECT_EQ(told, 1);
  launch->Abort(absl::CancelledError("enough"));
  EXPECT_EQ(status.get().message(), "enough");
}

}  // namespace
}  // namespace gangway::collective
