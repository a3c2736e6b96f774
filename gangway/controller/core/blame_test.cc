// Tests of Blame: suspects, quarantine, sessions, and what is forgotten.
#include "gangway/controller/core/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LaunchedProgramRef Program(const std::string& hash, uint64_t session = 1,
                           const std::string& owner = "") {
  return std::make_shared<const LaunchedProgram>(
      LaunchedProgram{.hash = hash,
                      .name = "step",
                      .session = SessionId(session),
                      .owner = Owner(owner, SessionId(session))});
}

class BlameTest : public ::testing::Test {
 protected:
  std::vector<std::string> Die(const std::vector<LaunchedProgramRef>& launches) {
    return blame_.OnDeath("island0/worker0", launches, now_);
  }
  std::string Orphan(const LaunchedProgramRef& program) {
    return blame_.OnOrphan("island0/worker0", *program, now_);
  }
  bool IsRefused(const LaunchedProgramRef& program) {
    return blame_.Check(*program, now_).has_value();
  }

  Time now_ = Time() + std::chrono::hours(1);
  Blame blame_{{.quarantine_time = milliseconds(1000), .entries_max = 3}};
};

TEST_F(BlameTest, AProgramIsQuarantinedAtTheSecondDeathThatIsItsOwn) {
  EXPECT_THAT(Die({Program("bad"), Program("bad")}), testing::ElementsAre(HasSubstr("alone")));
  EXPECT_TRUE(blame_.IsSuspect(*Program("bad"), now_));
  EXPECT_FALSE(IsRefused(Program("bad")));
  EXPECT_THAT(Die({Program("bad", 2)}), testing::ElementsAre(HasSubstr("quarantined")));
  const auto failure = blame_.Check(*Program("bad", 3), now_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(failure->message(), HasSubstr("program bad (step)"));
  EXPECT_THAT(failure->advice(), HasSubstr("ends in 1 s"));
  now_ += milliseconds(1000);
  EXPECT_FALSE(IsRefused(Program("bad")));
}

TEST_F(BlameTest, AProgramBesideOthersIsNoMoreThanASuspect) {
  for (int i = 0; i < 5; ++i) Die({Program("good"), Program("bad", 2)});
  EXPECT_TRUE(blame_.IsSuspect(*Program("good"), now_));
  EXPECT_FALSE(IsRefused(Program("good")));
  EXPECT_FALSE(IsRefused(Program("bad", 2)));
  blame_.OnGoodRun(*Program("good"), /*alone=*/true);
  EXPECT_FALSE(blame_.IsSuspect(*Program("good"), now_));
  Die({Program("bad", 2)});
  EXPECT_TRUE(IsRefused(Program("bad", 2)));
  EXPECT_FALSE(IsRefused(Program("good")));
}

TEST_F(BlameTest, ASessionOfManySuchProgramsIsRefused) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(IsRefused(Program("new", 7)));
    Die({Program(absl::StrCat("bad", i), 7)});
  }
  EXPECT_TRUE(IsRefused(Program("new", 7)));
  EXPECT_THAT(blame_.Check(*Program("new", 7), now_)->message(), HasSubstr("session 7"));
  EXPECT_FALSE(IsRefused(Program("new", 8)));
}

TEST_F(BlameTest, AnOwnerWithACertificateDoesNotStartCleanInItsNextSession) {
  for (uint64_t i = 1; i <= 4; ++i) Die({Program(absl::StrCat("bad", i), i, "client/a")});
  EXPECT_TRUE(IsRefused(Program("new", 5, "client/a")));
  EXPECT_THAT(blame_.Check(*Program("new", 5, "client/a"), now_)->message(),
              HasSubstr("client/a is quarantined: 4 workers"));
  EXPECT_FALSE(IsRefused(Program("new", 6, "client/b")));
  EXPECT_FALSE(IsRefused(Program("new", 6)));
}

TEST_F(BlameTest, AProgramThatIsAbandonedThreeTimesIsQuarantined) {
  EXPECT_THAT(Orphan(Program("endless", 1)), HasSubstr("program endless (step) of session 1"));
  EXPECT_FALSE(blame_.IsSuspect(*Program("endless"), now_)) << "it has crashed nothing";
  Orphan(Program("endless", 2));
  EXPECT_FALSE(IsRefused(Program("endless", 3)));
  EXPECT_THAT(Orphan(Program("endless", 3)), HasSubstr("quarantined"));
  ASSERT_TRUE(IsRefused(Program("endless", 4)));
  EXPECT_THAT(blame_.Check(*Program("endless", 4), now_)->message(),
              HasSubstr("3 workers were restarted because it held a device"));
  EXPECT_FALSE(IsRefused(Program("other", 4)));
  EXPECT_FALSE(IsRefused(Program("endless", 4, "client/a"))) << "another's own run";
  now_ += milliseconds(1000);
  EXPECT_FALSE(IsRefused(Program("endless", 4)));
}

TEST_F(BlameTest, ALongProgramThatEndsIsClearedOfItsAbandonedRuns) {
  for (uint64_t i = 1; i < 10; ++i) {
    Orphan(Program("long", i));
    Orphan(Program("long", i));
    blame_.OnGoodRun(*Program("long", i), /*alone=*/false);
    EXPECT_FALSE(IsRefused(Program("long", i)));
  }
}

TEST_F(BlameTest, AnOwnerWithACertificateIsRefusedForItsOrphansWhateverTheyAre) {
  for (uint64_t i = 1; i <= 4; ++i) {
    Orphan(Program(absl::StrCat("nonce", i), i));
    EXPECT_FALSE(IsRefused(Program("new", 5, "client/a")));
    Orphan(Program(absl::StrCat("nonce", i), i, "client/a"));
  }
  EXPECT_TRUE(IsRefused(Program("new", 5, "client/a")));
  EXPECT_FALSE(IsRefused(Program("new", 5)));
}

TEST_F(BlameTest, TheListForgetsTheOldest_TM2) {
  for (int i = 0; i < 4; ++i) {
    now_ += milliseconds(1);
    Die({Program(absl::StrCat("p", i), static_cast<uint64_t>(i) + 1)});
  }
  EXPECT_FALSE(blame_.IsSuspect(*Program("p0"), now_));
  EXPECT_TRUE(blame_.IsSuspect(*Program("p1"), now_));
}

TEST_F(BlameTest, WithoutATimeNoProgramIsBlamed) {
  Blame blame({.quarantine_time = milliseconds(0)});
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(blame.OnDeath("island0/worker0", {Program("bad")}, now_), IsEmpty());
  for (int i = 0; i < 5; ++i) blame.OnOrphan("island0/worker0", *Program("bad"), now_);
  EXPECT_FALSE(blame.IsSuspect(*Program("bad"), now_));
  EXPECT_FALSE(blame.Check(*Program("bad"), now_).has_value());
}

}  // namespace
}  // namespace gangway::controller
