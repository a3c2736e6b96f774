// Who is told of whom, and how often.
#include "gangway/scheduler/core/introductions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kWorkers = 130;  // more than two words of bits

class IntroductionsTest : public ::testing::Test {
 protected:
  IntroductionsTest() {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) Start(worker, worker + 1);
  }
  static std::vector<WorkerSpec> Specs() {
    std::vector<WorkerSpec> specs(kWorkers);
    for (uint32_t worker = 0; worker < kWorkers; ++worker)
      specs[worker].devices = {DeviceId(worker)};
    return specs;
  }
  void Start(uint32_t worker, uint64_t incarnation) {
    wire::WorkerRegistration registration;
    registration.set_index(worker);
    registration.set_incarnation(incarnation);
    fleet_.Start(registration, 0);
  }
  void End(uint32_t worker) {
    fleet_.Stop(worker);
    introductions_.NoteDown(worker);
  }
  void IntroduceFar(uint64_t incarnation, const std::vector<uint32_t>& workers) {
    wire::Worker far;
    far.set_island(1);
    far.set_index(7);
    far.set_incarnation(incarnation);
    introductions_.IntroduceFar(far, workers);
  }
  // Since the last call: "1 of 2 (incarnation 3)", in the order in which they were sent.
  std::vector<std::string> Told() {
    Actions actions;
    outbox_.TakeInto(actions);
    std::vector<std::string> told;
    for (const auto& [worker, item] : ByWorker(actions))
      for (const wire::Worker& other : item.peers().workers())
        told.push_back(absl::StrCat(worker, " of ", other.index(), " (incarnation ",
                                    other.incarnation(), ")"));
    items_ = actions.to_workers.size();
    return told;
  }

  Fleet fleet_{0, Specs()};
  Outbox outbox_{fleet_};
  Introductions introductions_{fleet_, outbox_};
  size_t items_ = 0;  // of the last Told
};

TEST_F(IntroductionsTest, EachIsToldOnceOfEachProcess) {
  introductions_.Introduce({3, 129}, {64, 129});
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 4)", "64 of 129 (incarnation 130)",
                                  "129 of 3 (incarnation 4)", "129 of 129 (incarnation 130)"));
  EXPECT_EQ(items_, 1u) << "both need the same";
  introductions_.Introduce({3, 63, 129}, {64, 129, 2});
  EXPECT_THAT(Told(), ElementsAre("2 of 3 (incarnation 4)", "2 of 63 (incarnation 64)",
                                  "2 of 129 (incarnation 130)", "64 of 63 (incarnation 64)",
                                  "129 of 63 (incarnation 64)"));
  EXPECT_EQ(items_, 2u);
}

TEST_F(IntroductionsTest, ThoseThatKnowAProcessHearOfItsEndOnce) {
  introductions_.Introduce({3}, {64, 129});
  Told();
  End(3);
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 0)", "129 of 3 (incarnation 0)"));
  introductions_.NoteDown(3);
  EXPECT_THAT(Told(), IsEmpty());
  introductions_.Introduce({3}, {64});
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 0)"));
  Start(3, 777);
  introductions_.Introduce({3}, {64});
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 777)"));
  End(3);
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 0)"));
}

TEST_F(IntroductionsTest, AProcessThatHasEndedKnowsNoOther) {
  introductions_.Introduce({3}, {64});
  IntroduceFar(9, {64});
  Told();
  End(64);
  introductions_.Introduce({3}, {64});
  IntroduceFar(9, {64});
  EXPECT_THAT(Told(), IsEmpty()) << "it is told once it is up";
  Start(64, 778);
  introductions_.Introduce({3}, {64});
  IntroduceFar(9, {64});
  EXPECT_THAT(Told(), ElementsAre("64 of 3 (incarnation 4)", "64 of 7 (incarnation 9)"));
}

TEST_F(IntroductionsTest, AWorkerOfAnotherIslandIsKnownByItsProcess) {
  IntroduceFar(9, {1, 2});
  EXPECT_THAT(Told(), ElementsAre("1 of 7 (incarnation 9)", "2 of 7 (incarnation 9)"));
  IntroduceFar(9, {2, 3});
  EXPECT_THAT(Told(), ElementsAre("3 of 7 (incarnation 9)"));
  IntroduceFar(10, {2});
  EXPECT_THAT(Told(), ElementsAre("2 of 7 (incarnation 10)"));
  IntroduceFar(10, {1, 2});
  EXPECT_THAT(Told(), ElementsAre("1 of 7 (incarnation 10)"));
}

}  // namespace
}  // namespace gangway::scheduler
