// Tests of round_sends.h.
#include "gangway/transport/local/round_sends.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

using When = RoundSends::When;

TEST(RoundSendsTest, TheFirstFrameOfARoundLeavesAtOnceAndTheOthersTogether) {
  RoundSends sends;
  const int loop = 0;
  for (uint64_t round = 1; round <= 2; ++round) {
    EXPECT_EQ(sends.Note(&loop, round), When::kNow);
    EXPECT_EQ(sends.Note(&loop, round), When::kAskForRoundEnd);
    EXPECT_EQ(sends.Note(&loop, round), When::kAtRoundEnd);
  }
  sends.NoteRoundEnd();
  EXPECT_EQ(sends.Note(&loop, 2), When::kAskForRoundEnd) << "sent after the flush of its round";
}

TEST(RoundSendsTest, RoundsOfTwoLoopsAreDifferentOnes) {
  RoundSends sends;
  const int loops[2] = {};
  EXPECT_EQ(sends.Note(&loops[0], 1), When::kNow);
  EXPECT_EQ(sends.Note(&loops[1], 1), When::kNow);
}

}  // namespace
}  // namespace gangway::transport
