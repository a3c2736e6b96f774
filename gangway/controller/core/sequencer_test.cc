// The sequencer alone: which gang gets a turn, and when all parts are released.
#include "gangway/controller/core/sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SequencerTest : public ::testing::Test {
 protected:
  // The decisions since the last call: "turn 3 on 0,1", "release 3 on 0,1".
  std::vector<std::string> Decided() {
    std::vector<std::string> words;
    for (const Sequencer::Decision& decision : decisions_) {
      words.push_back(absl::StrCat(decision.release ? "release " : "turn ", decision.ordinal,
                                   " on ", absl::StrJoin(decision.islands, ",")));
    }
    decisions_.clear();
    return words;
  }
  void Ready(uint64_t ordinal, const std::vector<uint32_t>& islands) {
    for (uint32_t island : islands) sequencer_.OnReady(Ordinal(ordinal), island, decisions_);
  }
  void Admitted(uint64_t ordinal, const std::vector<uint32_t>& islands) {
    for (uint32_t island : islands) sequencer_.OnAdmitted(Ordinal(ordinal), island, decisions_);
  }

  Sequencer sequencer_;
  std::vector<Sequencer::Decision> decisions_;
};

TEST_F(SequencerTest, TurnOnceReadyEverywhereReleaseOnceAdmittedEverywhere_GS4) {
  sequencer_.Add(Ordinal(3), {0, 1});
  Ready(3, {0});
  EXPECT_THAT(Decided(), IsEmpty());
  Ready(3, {1});
  EXPECT_THAT(Decided(), ElementsAre("turn 3 on 0,1"));
  Admitted(3, {1});
  EXPECT_THAT(Decided(), IsEmpty());
  Admitted(3, {0});
  EXPECT_THAT(Decided(), ElementsAre("release 3 on 0,1"));
  EXPECT_EQ(sequencer_.size(), 0u);
}

TEST_F(SequencerTest, OneWhoseInputsAreLateHoldsUpNobody) {
  sequencer_.Add(Ordinal(3), {0, 1});
  sequencer_.Add(Ordinal(4), {0, 1});
  Ready(3, {0});
  Ready(4, {0, 1});
  EXPECT_THAT(Decided(), ElementsAre("turn 4 on 0,1"));
}

TEST_F(SequencerTest, HigherOrdinalsGetTheirTurnBesideLowerOnes) {
  sequencer_.Add(Ordinal(3), {0, 1});
  sequencer_.Add(Ordinal(4), {1, 2});
  Ready(3, {0, 1});
  Ready(4, {1, 2});
  EXPECT_THAT(Decided(), ElementsAre("turn 3 on 0,1", "turn 4 on 1,2"));
}

// An island short of slots would serve the lower ordinal first, while another island may have
// served the higher one already.
TEST_F(SequencerTest, LowerOrdinalsWaitForHigherOnesThatHaveTheirTurn_GS4) {
  sequencer_.Add(Ordinal(3), {0, 1});
  sequencer_.Add(Ordinal(4), {1, 2});
  sequencer_.Add(Ordinal(5), {2, 3});
  Ready(4, {1, 2});
  Ready(3, {0, 1});
  Ready(5, {2, 3});
  EXPECT_THAT(Decided(), ElementsAre("turn 4 on 1,2", "turn 5 on 2,3"));
  Admitted(4, {1, 2});
  EXPECT_THAT(Decided(), ElementsAre("release 4 on 1,2", "turn 3 on 0,1"));
}

TEST_F(SequencerTest, GangsOnOtherIslandsDoNotWait) {
  sequencer_.Add(Ordinal(3), {0, 1});
  sequencer_.Add(Ordinal(4), {2, 3});
  Ready(4, {2, 3});
  Ready(3, {0, 1});
  EXPECT_THAT(Decided(), ElementsAre("turn 4 on 2,3", "turn 3 on 0,1"));
}

TEST_F(SequencerTest, AFailedOneLetsOthersGo) {
  sequencer_.Add(Ordinal(3), {0, 1});
  sequencer_.Add(Ordinal(4), {0, 1});
  Ready(4, {0, 1});
  Ready(3, {0, 1});
  Decided();
  sequencer_.Remove(Ordinal(4), decisions_);
  EXPECT_THAT(Decided(), ElementsAre("turn 3 on 0,1"));
  Admitted(4, {0, 1});  // in flight when it failed
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SequencerTest, WhatItDoesNotKnowIsIgnored) {
  sequencer_.Add(Ordinal(3), {0, 1});
  Ready(7, {0, 1});
  Ready(3, {0, 0, 2});
  Admitted(3, {0, 1});
  sequencer_.Remove(Ordinal(9), decisions_);
  EXPECT_THAT(Decided(), IsEmpty());
  Ready(3, {1});
  EXPECT_THAT(Decided(), ElementsAre("turn 3 on 0,1"));
}

}  // namespace
}  // namespace gangway::controller
