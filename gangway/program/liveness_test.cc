// AddFrees, in text form.
#include <gtest/gtest.h>

#include "gangway/program/functions_test_util.h"

namespace gangway::program {
namespace {

TEST(LivenessTest, FreesBehindTheLastUse) {
  EXPECT_EQ(TextOf(AddFrees(Parsed("program p\n"
                                   "%0: f32[2] = argument @0,1\n"
                                   "%1: f32[2], %2 = call f(%0) @0,1\n"
                                   "%3 = transfer %1 @2,3\n"
                                   "%4 = view %3[0], %2[1] @2,1\n"
                                   "%5 = call g(%4, %4, %0) @0,1\n"
                                   "%6 = call h(%5) @0,1\n"
                                   "result %6\n"
                                   "result %6\n"
                                   "result %0\n"))),
            "program p\n"
            "%0: f32[2] = argument @0,1\n"
            "%1: f32[2], %2 = call f(%0) @0,1\n"
            "%3 = transfer %1 @2,3\n"
            "free %1\n"
            "%4 = view %3[0], %2[1] @2,1\n"
            "free %2, %3\n"
            "%5 = call g(%4, %4, %0) @0,1\n"
            "free %4\n"
            "%6 = call h(%5) @0,1\n"
            "free %5\n"
            "result %6\n"
            "result %6\n"
            "free %6\n"
            "result %0\n");
}

TEST(LivenessTest, WhatNothingUsesIsFreedAtOnceAndWhatIsDonatedIsNot) {
  EXPECT_EQ(TextOf(AddFrees(Parsed("%0 = argument\n"
                                   "%1, %2 = call f(donate %0)\n"
                                   "%3 = call g(donate %1)\n"
                                   "call h()\n"))),
            "%0 = argument\n"
            "%1, %2 = call f(donate %0)\n"
            "free %2\n"
            "%3 = call g(donate %1)\n"
            "free %3\n"
            "call h()\n");
}

TEST(LivenessTest, FreesNothingTwice) {
  const std::string text =
      "%0 = argument\n"
      "%1 = call f(%0)\n"
      "%2 = call g(%1)\n"
      "free %1\n"
      "result %2\n"
      "free %2\n"
      "free %0\n";
  EXPECT_EQ(TextOf(AddFrees(Parsed(text))), text);
}

}  // namespace
}  // namespace gangway::program
