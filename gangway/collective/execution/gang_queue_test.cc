// What others see of the gangs of a device, in whatever order these end, and whom that wakes.
#include "gangway/collective/execution/gang_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gangway/base/thread.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/peer.h"
#include "gangway/collective/execution/peer_devices.h"

namespace gangway::collective {
namespace {

using Ending = GangQueue::Ending;

// A worker with two devices, of which the second one waits for the first.
class GangQueueTest : public ::testing::Test {
 protected:
  uint64_t left() const { return region_.left.load(); }
  std::shared_ptr<const PeerDevices> Members(const std::vector<uint32_t>& devices) const {
    std::vector<PeerDevice> members;
    for (uint32_t device : devices) members.push_back({peer_, device});
    return std::make_shared<const PeerDevices>(std::move(members));
  }
  // `leave` wakes the second device, which sleeps until the first one has left a gang. Both functions get the order
  // position of a round's first gang. In some round the sleeper sleeps before the gang is left.
  template <typename Enter, typename Leave>
  void ExpectWakes(Enter enter, Leave leave) {
    constexpr std::chrono::milliseconds kMax{2000};
    constexpr int kRounds = 8, kYields = 100;
    for (uint64_t order = 5; order < 5 + kRounds * 10; order += 10) {
      enter(order);
      const uint32_t seen = region_.pulse.load();
      bool is_woken = false;
      std::atomic<bool> is_about_to_sleep = false;
      arena_->own(1).awaited = SleepsFor(PeerNumber(0, 0), Deed::kRead);
      Thread sleeper("sleeper", [&] {
        is_about_to_sleep = true;
        is_woken = FutexWait(region_.pulse, seen, kMax, static_cast<FutexBits>(Deed::kRead));
      });
      for (int i = 0; i < kYields || !is_about_to_sleep; ++i) YieldCore();
      leave(order);
      sleeper.Join();
      arena_->own(1).awaited = 0;
      ASSERT_TRUE(is_woken);
    }
  }

  const std::shared_ptr<Arena> arena_ = *Arena::Create(2);
  const std::shared_ptr<const Peer> peer_ = std::make_shared<Peer>("worker0", 0, arena_);
  Region& region_ = arena_->own(0);
  GangQueue gangs_{region_, PeerNumber(0, 0)};
};

TEST_F(GangQueueTest, IsLeftUpToTheFirstGangThatIsUnderWay) {
  gangs_.Enter(5);
  EXPECT_EQ(left(), 4u) << "earlier ones are not of this device";
  gangs_.Enter(7);
  gangs_.Enter(9);
  EXPECT_FALSE(gangs_.Leave(7, Ending::kComplete).has_value());
  EXPECT_EQ(left(), 4u);
  gangs_.Leave(5, Ending::kComplete);
  EXPECT_EQ(left(), 8u);
  gangs_.Leave(9, Ending::kComplete);
  EXPECT_EQ(left(), 9u);
  gangs_.Enter(12);
  EXPECT_EQ(left(), 11u);
}

TEST_F(GangQueueTest, KeepsItsOrderOverManyGangs) {
  constexpr uint64_t kGangs = 1000, kAhead = 10;
  for (uint64_t order = 1; order <= kGangs; ++order) {
    gangs_.Enter(order);
    if (order <= kAhead) continue;
    gangs_.Leave(order - kAhead, Ending::kComplete);
    EXPECT_EQ(left(), order - kAhead);
  }
}

TEST_F(GangQueueTest, TellsOthersOfAFailureOnceEarlierGangsHaveEnded) {
  gangs_.Enter(5);
  gangs_.Enter(6);
  const auto failed = gangs_.Leave(6, Ending::kEarly);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->order, 4u);
  EXPECT_EQ(failed->failed, 6u);
  const auto later = gangs_.Leave(5, Ending::kComplete);
  ASSERT_TRUE(later.has_value()) << "now it has left 6, too";
  EXPECT_EQ(later->order, 6u);
}

TEST_F(GangQueueTest, WakesAMemberThatSleepsForIt) {
  ExpectWakes(
      [&](uint64_t order) {
        gangs_.Enter(order);
        gangs_.SetMembers(order, Members({0, 1}));
      },
      [&](uint64_t order) { gangs_.Leave(order, Ending::kComplete); });
}

TEST_F(GangQueueTest, WakesAllOfAGangWhoseMembersAreNotKnown) {
  ExpectWakes([&](uint64_t order) { gangs_.Enter(order); },
              [&](uint64_t order) { gangs_.Leave(order, Ending::kComplete); });
}

TEST_F(GangQueueTest, WakesAMemberOfAGangThatWasLeftBeforeAnEarlierOne) {
  ExpectWakes(
      [&](uint64_t order) {
        gangs_.Enter(order);
        gangs_.SetMembers(order, Members({0}));
        gangs_.Enter(order + 1);
        gangs_.SetMembers(order + 1, Members({0, 1}));
        gangs_.Leave(order + 1, Ending::kComplete);
      },
      [&](uint64_t order) { gangs_.Leave(order, Ending::kComplete); });
}

}  // namespace
}  // namespace gangway::collective
