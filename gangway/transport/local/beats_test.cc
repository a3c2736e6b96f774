// Tests of beats.h.
#include "gangway/transport/local/beats.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

using Due = Beats::Due;
using Peer = Beats::Peer;
using Reading = Beats::Reading;

class BeatsTest : public testing::Test {
 protected:
  Due Look(Peer peer = Peer::kGreeted, Reading reading = Reading::kGoesOn) {
    return beats_.Look(beats_.next(), peer, reading);
  }
  const Clock::time_point begin_{std::chrono::milliseconds(100'300)};
  Beats beats_{begin_};
};

TEST_F(BeatsTest, ALookIsDueEvery15SecondsAtAWholeSecond) {
  EXPECT_EQ(beats_.next(), Clock::time_point(std::chrono::seconds(115)));
  (void)Look();
  EXPECT_EQ(beats_.next(), Clock::time_point(std::chrono::seconds(130)));
}

TEST_F(BeatsTest, AnEndThatHasSentNothingBeats) {
  beats_.NoteReceived();
  beats_.NoteSent();
  EXPECT_EQ(Look(), Due::kNothing);
  EXPECT_EQ(Look(), Due::kBeat);
}

TEST_F(BeatsTest, APeerThatIsSilentForAMinuteIsLost_TM1) {
  for (int look = 1; look < 4; ++look) EXPECT_NE(Look(), Due::kPeerIsLost) << look;
  EXPECT_EQ(Look(), Due::kPeerIsLost);
}

TEST_F(BeatsTest, APeerIsNotSilentIfItWasHeardOrNotRead) {
  for (int i = 0; i < 3; ++i) {
    for (int look = 1; look < 4; ++look) EXPECT_NE(Look(), Due::kPeerIsLost) << look;
    if (i % 2 == 0) beats_.NoteReceived();
    EXPECT_NE(Look(Peer::kGreeted, i % 2 == 0 ? Reading::kGoesOn : Reading::kRests),
              Due::kPeerIsLost);
  }
}

TEST_F(BeatsTest, APeerThatDoesNotGreetIsLostAfterHalfAMinuteAndGetsNoBeat_TM1) {
  EXPECT_EQ(Look(Peer::kGreets), Due::kNothing);
  EXPECT_EQ(Look(Peer::kGreets), Due::kPeerIsLost);
}

}  // namespace
}  // namespace gangway::transport
