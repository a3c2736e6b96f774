// Tests of promised_places.h, with workers that become known when the test says so.
#include "gangway/worker/service/promised_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/collective/execution/arena.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint32_t kDevices = 64;  // of each worker

absl::Status Wanted() { return absl::OkStatus(); }

class PromisedPlacesTest : public testing::Test {
 protected:
  static std::shared_ptr<PeerPromise> Promised(uint32_t worker) {
    auto promise = std::make_shared<PeerPromise>(absl::StrCat("worker", worker));
    promise->Set(std::make_shared<collective::Peer>(absl::StrCat("worker", worker), worker,
                                                    *collective::Arena::Anonymous(kDevices)));
    return promise;
  }
  static Clock::time_point In(milliseconds time) { return Clock::now() + time; }
};

TEST_F(PromisedPlacesTest, AWaitAsksEachWorkerOnceAndOneListServesAllDevices) {
  constexpr uint32_t kWorkers = 4;
  std::vector<std::shared_ptr<PeerPromise>> peers;
  std::vector<PromisedPlaces::Place> of_positions;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    peers.push_back(Promised(worker));
    for (uint32_t device = 0; device < kDevices; ++device) of_positions.push_back({worker, device});
  }
  PromisedPlaces places(peers, of_positions);
  size_t asked = 0;
  const auto count = [&asked]() {
    ++asked;
    return absl::OkStatus();
  };
  const auto found = places.Wait(In(milliseconds(10'000)), count);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(asked, kWorkers) << "a first launch waits on each device: not in proportion to all";
  ASSERT_EQ((*found)->size(), of_positions.size());
  EXPECT_EQ((*found)->at(kDevices + 3).peer->name(), "worker1");
  EXPECT_EQ((*found)->at(kDevices + 3).device, 3);
  const auto again = places.Wait(In(milliseconds(10'000)), count);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *found);
  EXPECT_EQ(asked, kWorkers);
}

TEST_F(PromisedPlacesTest, ADeviceThatItsWorkerDoesNotHaveIsNamed) {
  PromisedPlaces places({Promised(7)}, {{0, kDevices - 1}, {0, kDevices}});
  EXPECT_THAT(places.Wait(In(milliseconds(10'000)), Wanted).status().message(),
              HasSubstr("worker7 has no device 64"));
}

TEST_F(PromisedPlacesTest, AWaitForAWorkerThatIsNotHeardEndsAtItsLimitAndNamesIt) {
  PromisedPlaces places({Promised(0), std::make_shared<PeerPromise>("worker1")}, {{0, 0}, {1, 0}});
  const absl::Status waited = places.Wait(In(milliseconds(20)), Wanted).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
  EXPECT_THAT(waited.message(), HasSubstr("worker1"));
}

TEST_F(PromisedPlacesTest, AWaitThatIsNotWantedEnds) {
  PromisedPlaces places({std::make_shared<PeerPromise>("worker0")}, {{0, 0}});
  int looks = 0;
  const auto unwanted = [&looks]() {
    return ++looks < 3 ? absl::OkStatus() : absl::CancelledError("its session has ended");
  };
  EXPECT_THAT(places.Wait(In(milliseconds(60'000)), unwanted).status().message(),
              HasSubstr("its session has ended"));
}

}  // namespace
}  // namespace gangway::worker
