// What the end of a compiler process costs a program and its session.
#include "gangway/controller/core/compile_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr SessionId kHostile(1), kOther(2);

class CompileBlameTest : public ::testing::Test {
 protected:
  static wire::CompileRequest Program(const std::string& text) {
    wire::CompileRequest request;
    request.set_program(text);
    request.set_device_count(1);
    return request;
  }
  // `count` ends of compilers, each by another program.
  void Die(int count, SessionId session = kHostile) {
    for (int i = 0; i < count; ++i)
      blame_.OnDeath(session, Program(absl::StrCat("killer", next_++)), now_);
  }
  std::string Refusal(SessionId session, const std::string& program = "innocent") {
    const auto failure = blame_.Check(session, Program(program), now_);
    return failure ? failure->message() : "";
  }
  Standing StandingOf(SessionId session) const { return blame_.StandingOf(session, now_); }

  CompileBlame blame_{CompileBlameLimits{.suspects_max = 3}};
  Time now_{seconds(1000)};
  int next_ = 0;
};

TEST_F(CompileBlameTest, ASessionFallsByItsDeaths) {
  EXPECT_EQ(StandingOf(kHostile), Standing::kClean);
  Die(1);
  EXPECT_EQ(StandingOf(kHostile), Standing::kSuspect);
  Die(1);
  EXPECT_EQ(StandingOf(kHostile), Standing::kSuspect);
  Die(1);
  EXPECT_EQ(StandingOf(kHostile), Standing::kLast);
  EXPECT_EQ(Refusal(kHostile), "");
  Die(1);
  EXPECT_EQ(Refusal(kHostile), "");
  Die(1);
  EXPECT_THAT(Refusal(kHostile), HasSubstr("session 1 may compile nothing for 60 s"));
  EXPECT_EQ(StandingOf(kOther), Standing::kClean);
  EXPECT_EQ(Refusal(kOther), "");
}

TEST_F(CompileBlameTest, ARefusalEndsAndTheNextDeathRenewsIt) {
  Die(5);
  now_ += seconds(59);
  EXPECT_THAT(Refusal(kHostile), HasSubstr("for 1 s"));
  now_ += seconds(1);
  EXPECT_EQ(Refusal(kHostile), "");
  EXPECT_EQ(StandingOf(kHostile), Standing::kLast);
  Die(1);
  EXPECT_THAT(Refusal(kHostile), HasSubstr("may compile nothing"));
}

TEST_F(CompileBlameTest, DeathsAreForgottenAWindowAfterTheLast) {
  Die(4);
  now_ += minutes(5) - milliseconds(1);
  Die(1);
  EXPECT_NE(Refusal(kHostile), "");
  now_ += minutes(5) - milliseconds(1);
  EXPECT_EQ(StandingOf(kHostile), Standing::kLast);
  now_ += milliseconds(1);
  EXPECT_EQ(StandingOf(kHostile), Standing::kClean);
}

TEST_F(CompileBlameTest, AProgramThatCompilesAfterAllIsTakenOffItsSessionsCount) {
  blame_.OnDeath(kHostile, Program("a"), now_);
  blame_.OnCompiled(kHostile, Program("b"));
  EXPECT_EQ(StandingOf(kHostile), Standing::kSuspect);
  blame_.OnCompiled(kHostile, Program("a"));
  EXPECT_EQ(StandingOf(kHostile), Standing::kClean);
}

TEST_F(CompileBlameTest, ALimitCountsAgainstTheSessionAndNoProgram) {
  for (int i = 0; i < 5; ++i) blame_.OnLimit(kHostile, now_);
  EXPECT_NE(Refusal(kHostile, "a"), "");
  EXPECT_EQ(Refusal(kOther, "a"), "");
}

TEST_F(CompileBlameTest, AProgramIsQuarantinedForAll) {
  EXPECT_THAT(blame_.OnDeath(kHostile, Program("a"), now_), HasSubstr("once more"));
  EXPECT_EQ(Refusal(kOther, "a"), "");
  EXPECT_THAT(blame_.OnDeath(kOther, Program("a"), now_), HasSubstr("quarantined"));
  EXPECT_THAT(Refusal(SessionId(3), "a"), HasSubstr("is quarantined"));
  now_ += minutes(10);
  EXPECT_EQ(Refusal(SessionId(3), "a"), "");
}

TEST_F(CompileBlameTest, TheListsAreBounded) {
  for (uint64_t session = 1; session <= 4; ++session) {
    now_ += seconds(1);
    Die(5, SessionId(session));
  }
  EXPECT_EQ(Refusal(SessionId(1)), "") << "the oldest is forgotten";
  EXPECT_NE(Refusal(SessionId(2)), "");
}

}  // namespace
}  // namespace gangway::controller
