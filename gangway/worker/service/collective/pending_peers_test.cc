// Tests of pending_peers.h, with workers that become known when the test says so.
#include "gangway/worker/service/collective/pending_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/collective/execution/arena.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint32_t kDevices = 64;  // of each worker

absl::Status Wanted() { return absl::OkStatus(); }

class PendingPeersTest : public testing::Test {
 protected:
  // All workers are known but those of `unheard_`.
  PendingPeers Of(const std::vector<PendingPeers::WorkerDevice>& devices) {
    return PendingPeers(devices, [this](uint32_t worker) {
      ++asked_;
      auto pending = std::make_shared<PendingPeer>(absl::StrCat("worker", worker));
      if (!unheard_.contains(worker)) {
        pending->Set(std::make_shared<collective::Peer>(absl::StrCat("worker", worker), worker,
                                                        *collective::Arena::Anonymous(kDevices)));
      }
      return pending;
    });
  }
  static Clock::time_point In(milliseconds time) { return Clock::now() + time; }

  std::set<uint32_t> unheard_;
  size_t asked_ = 0;
};

TEST_F(PendingPeersTest, AWaitIsForEachWorkerOnceAndOneListServesAllDevices) {
  constexpr uint32_t kWorkers = 4;
  std::vector<PendingPeers::WorkerDevice> of_positions;
  for (uint32_t i = 0; i < kWorkers * kDevices; ++i)
    of_positions.push_back({7 - i % kWorkers, i / kWorkers});
  PendingPeers devices = Of(of_positions);
  EXPECT_EQ(asked_, kWorkers);
  size_t looks = 0;
  const auto look = [&looks]() {
    ++looks;
    return absl::OkStatus();
  };
  const auto found = devices.Wait(In(milliseconds(10'000)), look);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(looks, kWorkers) << "a first launch waits on each device: not for each position";
  ASSERT_EQ((*found)->size(), of_positions.size());
  for (size_t i = 0; i < of_positions.size(); ++i) {
    EXPECT_EQ((**found)[i].peer->index(), of_positions[i].worker);
    EXPECT_EQ((**found)[i].device, of_positions[i].device);
  }
  const auto again = devices.Wait(In(milliseconds(10'000)), look);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *found);
  EXPECT_EQ(looks, kWorkers);
}

TEST_F(PendingPeersTest, ADeviceThatItsWorkerDoesNotHaveIsNamedAlsoIfAnotherOneIsNotHeard) {
  unheard_ = {8};
  PendingPeers devices = Of({{7, kDevices - 1}, {7, kDevices}, {7, 0}, {8, 0}});
  EXPECT_THAT(devices.Wait(In(milliseconds(10'000)), Wanted).status().message(),
              HasSubstr("worker7 has no device 64"));
}

TEST_F(PendingPeersTest, AWorkerThatNoMemberMeetsIsNotWaitedFor) {
  const std::vector<PendingPeers::WorkerDevice> of_positions = {{7, 0}, {8, 0}, {7, 1}};
  PendingPeers devices(of_positions, [](uint32_t worker) -> std::shared_ptr<PendingPeer> {
    if (worker == 8) return nullptr;
    auto pending = std::make_shared<PendingPeer>("worker7");
    pending->Set(std::make_shared<collective::Peer>("worker7", worker,
                                                    *collective::Arena::Anonymous(kDevices)));
    return pending;
  });
  const auto found = devices.Wait(In(milliseconds(10'000)), Wanted);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((**found)[0].peer->index(), 7u);
  EXPECT_EQ((**found)[1].peer, nullptr);
  EXPECT_EQ((**found)[2].device, 1u);
}

TEST_F(PendingPeersTest, AWaitForAWorkerThatIsNotHeardEndsAtItsLimitAndNamesIt) {
  unheard_ = {1};
  PendingPeers devices = Of({{0, 0}, {1, 0}});
  const absl::Status waited = devices.Wait(In(milliseconds(20)), Wanted).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
  EXPECT_THAT(waited.message(), HasSubstr("worker1"));
}

TEST_F(PendingPeersTest, AWaitThatIsNotWantedEnds) {
  unheard_ = {0};
  PendingPeers devices = Of({{0, 0}});
  int looks = 0;
  const auto unwanted = [&looks]() {
    return ++looks < 3 ? absl::OkStatus() : absl::CancelledError("its session has ended");
  };
  EXPECT_THAT(devices.Wait(In(milliseconds(60'000)), unwanted).status().message(),
              HasSubstr("its session has ended"));
}

}  // namespace
}  // namespace gangway::worker
