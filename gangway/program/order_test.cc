// Order and ArgumentsFirst, in text form.
#include <gtest/gtest.h>

#include "gangway/program/functions_test_util.h"

namespace gangway::program {
namespace {

TEST(OrderTest, TransfersOfACallsOutputsFollowIt) {
  EXPECT_EQ(TextOf(Order(Parsed("program p\n"
                                "%0: f32[2] = argument @0,1\n"
                                "%1, %2: f32[2] = call f(%0) @0,1\n"
                                "%3 = call g(%1) @0,1\n"
                                "%4: f32[2] = transfer %2 @4,5 from \"t.py:3\"\n"
                                "%5 = transfer %3 @2,3\n"
                                "%6 = transfer %1 @2,3\n"
                                "%7 = call h(%4, donate %6, keep %5) @2,3\n"
                                "result %7\n"))),
            "program p\n"
            "%0: f32[2] = argument @0,1\n"
            "%1, %2: f32[2] = call f(%0) @0,1\n"
            "%3: f32[2] = transfer %2 @4,5 from \"t.py:3\"\n"
            "%4 = transfer %1 @2,3\n"
            "%5 = call g(%1) @0,1\n"
            "%6 = transfer %5 @2,3\n"
            "%7 = call h(%3, donate %4, keep %6) @2,3\n"
            "result %7\n");
}

TEST(OrderTest, AllElseKeepsItsPlace) {
  const std::string text =
      "%0 = argument @0,1\n"
      "%1 = call f(%0) @0,1\n"
      "%2 = transfer %1 @2,3\n"
      "%3 = call g(%0) @0,1\n"
      "%4 = transfer %0 @2,3\n"
      "%5 = view %1[0], %3[1] @0,1\n"
      "%6 = transfer %5 @2,3\n"
      "%7 = call h(%1) @0,1\n"
      "%8 = transfer %2 @4,5\n";
  EXPECT_EQ(TextOf(Order(Parsed(text))), text);
}

TEST(ArgumentsFirstTest, TheRestKeepsItsOrder) {
  EXPECT_EQ(TextOf(ArgumentsFirst(Parsed("%0 = call f()\n"
                                         "%1: f32[2] = argument @0\n"
                                         "%2 = call g(%0, %1)\n"
                                         "%3 = argument @1\n"
                                         "%4 = call h(%3, %2)\n"))),
            "%0: f32[2] = argument @0\n"
            "%1 = argument @1\n"
            "%2 = call f()\n"
            "%3 = call g(%2, %0)\n"
            "%4 = call h(%1, %3)\n");
}

}  // namespace
}  // namespace gangway::program
