// What `gangway doctor` says of slow wakes, and that they can be measured.
#include "gangway/cli/wakes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace gangway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFile[] = "/dev/cpu_dma_latency";

TEST(WakesTest, FastWakesNeedNothing) {
  const WakesAdvice advice = Judge({.round_trip_us = 9.4, .file = kFile, .refusal = "absent"});
  EXPECT_FALSE(advice.needed);
  EXPECT_THAT(advice.text, AllOf(HasSubstr("takes 9 us"), HasSubstr("wake at once"),
                                 Not(HasSubstr("To do")), Not(HasSubstr("governor"))));
}

TEST(WakesTest, TheRequestMakesThemFast) {
  const WakesAdvice advice = Judge({.round_trip_us = 84,
                                    .held_us = 25,
                                    .file = kFile,
                                    .governor = "haltpoll",
                                    .guest_halt_poll_ns = 0});
  EXPECT_FALSE(advice.needed);
  EXPECT_THAT(advice.text, AllOf(HasSubstr("84 us"), HasSubstr("25 us"), HasSubstr(kFile),
                                 HasSubstr("governor haltpoll, guest_halt_poll_ns = 0"),
                                 Not(HasSubstr("To do"))));
}

TEST(WakesTest, WhereTheRequestIsRefusedBothWaysOutAreNamed) {
  const WakesAdvice advice = Judge({.round_trip_us = 84,
                                    .file = kFile,
                                    .refusal = "Permission denied",
                                    .governor = "haltpoll",
                                    .guest_halt_poll_ns = 0});
  EXPECT_TRUE(advice.needed);
  EXPECT_THAT(advice.text, AllOf(HasSubstr("halts this virtual machine at once"),
                                 HasSubstr("Permission denied"), HasSubstr("as root"),
                                 HasSubstr("udev"), HasSubstr("echo 200000 > /sys/module")));
}

TEST(WakesTest, OnlyThePolicyThatHaltsIsToBeChanged) {
  const WakesAdvice slow = Judge({.round_trip_us = 60,
                                  .file = kFile,
                                  .refusal = "No such file or directory",
                                  .governor = "menu"});
  EXPECT_TRUE(slow.needed);
  EXPECT_THAT(slow.text,
              AllOf(HasSubstr("governor menu"), HasSubstr("container"), Not(HasSubstr("halt"))));
  const WakesAdvice polls = Judge({.round_trip_us = 60,
                                   .file = kFile,
                                   .refusal = "Permission denied",
                                   .governor = "haltpoll",
                                   .guest_halt_poll_ns = 200'000});
  EXPECT_THAT(polls.text, AllOf(HasSubstr("guest_halt_poll_ns = 200000"), Not(HasSubstr("echo"))));
}

TEST(WakesTest, ARequestThatIsTurnedOffIsNamed) {
  const WakesAdvice advice = Judge({.round_trip_us = 84, .file = ""});
  EXPECT_TRUE(advice.needed);
  EXPECT_THAT(advice.text, HasSubstr("unset GANGWAY_LATENCY_REQUEST"));
}

TEST(WakesTest, ARequestThatHelpsLittleIsNotPraised) {
  const WakesAdvice advice = Judge({.round_trip_us = 400, .held_us = 390, .file = kFile});
  EXPECT_TRUE(advice.needed);
  EXPECT_THAT(advice.text, AllOf(HasSubstr("390 us"), HasSubstr("other work")));
}

TEST(WakesTest, TheyAreMeasured) {
  setenv("GANGWAY_LATENCY_REQUEST", "0", 1);
  const Wakes wakes = MeasureWakes();
  unsetenv("GANGWAY_LATENCY_REQUEST");
  EXPECT_GT(wakes.round_trip_us, 0);
  EXPECT_FALSE(wakes.held_us);
  EXPECT_EQ(wakes.file, "");
}

}  // namespace
}  // namespace gangway::cli
