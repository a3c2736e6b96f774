// InsertTransfers, in text form.
#include <gtest/gtest.h>

#include "gangway/program/functions_test_util.h"

namespace gangway::program {
namespace {

std::string Moved(std::string_view text) { return TextOf(InsertTransfers(Parsed(text))); }

TEST(TransfersTest, MovesWhatIsElsewhereOnceForAllCalls) {
  EXPECT_EQ(Moved("%0: f32[2]{pinned_host} = argument @0,1\n"
                  "%1 = argument @2,3\n"
                  "%2: f32[2] = call far(%0, %1, %0) @2,3 from \"t.py:1\"\n"
                  "%3 = call far(%2, %0) @2,3\n"
                  "%4 = call farther(%0) @4,5\n"
                  "result %4\n"),
            "%0: f32[2]{pinned_host} = argument @0,1\n"
            "%1 = argument @2,3\n"
            "%2: f32[2] = transfer %0 @2,3 from \"t.py:1\"\n"
            "%3: f32[2] = call far(%2, %1, %2) @2,3 from \"t.py:1\"\n"
            "%4 = call far(%3, %2) @2,3\n"
            "%5: f32[2] = transfer %0 @4,5\n"
            "%6 = call farther(%5) @4,5\n"
            "result %6\n");
}

TEST(TransfersTest, ACallThatDonatesHasATransferOfItsOwn) {
  EXPECT_EQ(Moved("%0 = argument @0,1\n"
                  "%1 = call far(%0) @2,3\n"
                  "%2 = call take(donate %1, donate %0) @2,3\n"
                  "%3 = call f(%2) @2,3\n"),
            "%0 = argument @0,1\n"
            "%1 = transfer %0 @2,3\n"
            "%2 = call far(%1) @2,3\n"
            "%3 = transfer %0 @2,3\n"
            "%4 = call take(donate %2, donate %3) @2,3\n"
            "%5 = call f(%4) @2,3\n");
}

TEST(TransfersTest, LeavesWhatIsThereOrNotKnown) {
  const std::string text =
      "program p\n"
      "%0 = argument\n"
      "%1 = argument @0,1\n"
      "%2 = call f(%0, %1) @0,1\n"
      "%3 = call g(%0, %1)\n"
      "%4 = transfer %2 @2,3 {pinned_host}\n"
      "%5 = view %4[0], %1[0] @2,0\n"
      "result %5\n";
  EXPECT_EQ(Moved(text), text);
}

TEST(TransfersTest, NamesBothListsOfDevices) {
  EXPECT_EQ(Moved("%0 = argument @0,1\n%1 = call f(%0) @2,3,4 from \"t.py:7\"\n"),
            "node 1 (call f, t.py:7) runs on devices 2,3,4 and takes %0 as input 0, which has "
            "another number of shards, on devices 0,1");
}

}  // namespace
}  // namespace gangway::program
