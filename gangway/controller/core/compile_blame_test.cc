// What the end of a compiler process costs a program and its session.
#include "gangway/controller/core/compile_blame.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr SessionId kHostile(1), kOther(2);

class CompileBlameTest : public ::testing::Test {
 protected:
  static PendingCompile Program(SessionId session, const std::string& text,
                                const std::string& owner = "") {
    PendingCompile compile{.session = session, .owner = Owner(owner, session), .platform = "cpu"};
    compile.request.set_program(text);
    compile.request.set_device_count(1);
    return compile;
  }
  // `count` ends of compilers, each by another program.
  void Die(int count, SessionId session = kHostile) {
    for (int i = 0; i < count; ++i)
      blame_.OnDeath(Program(session, absl::StrCat("killer", next_++)), now_, now_);
  }
  std::string Refusal(SessionId session, const std::string& program = "innocent") {
    const auto failure = blame_.Check(Program(session, program), now_);
    return failure ? failure->message() : "";
  }
  Standing StandingOf(SessionId session) const {
    return blame_.StandingOf(Program(session, ""), now_);
  }

  CompileBlame blame_{/*suspects_max=*/3};
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
  blame_.OnDeath(Program(kHostile, "a"), now_, now_);
  blame_.OnCompiled(Program(kHostile, "b"));
  EXPECT_EQ(StandingOf(kHostile), Standing::kSuspect);
  blame_.OnCompiled(Program(kHostile, "a"));
  EXPECT_EQ(StandingOf(kHostile), Standing::kClean);
}

TEST_F(CompileBlameTest, ALimitCountsAgainstTheSessionAndNoProgram) {
  for (int i = 0; i < 5; ++i) blame_.OnLimit(Program(kHostile, "slow"), now_);
  EXPECT_NE(Refusal(kHostile, "a"), "");
  EXPECT_EQ(Refusal(kOther, "a"), "");
}

TEST_F(CompileBlameTest, AProgramIsQuarantinedForAll) {
  EXPECT_THAT(blame_.OnDeath(Program(kHostile, "a"), now_, now_), HasSubstr("once more"));
  EXPECT_EQ(Refusal(kOther, "a"), "");
  now_ += kOneCause;
  EXPECT_THAT(blame_.OnDeath(Program(kOther, "a"), now_, now_), HasSubstr("quarantined"));
  EXPECT_THAT(Refusal(SessionId(3), "a"), HasSubstr("is quarantined"));
  now_ += minutes(10);
  EXPECT_EQ(Refusal(SessionId(3), "a"), "");
}

TEST_F(CompileBlameTest, ProcessesThatEndTogetherAtOneProgramCountOnceForIt) {
  const Time began = now_;
  for (int i = 0; i < 2; ++i) {
    now_ += seconds(1);
    EXPECT_THAT(blame_.OnDeath(Program(kHostile, "a"), began, now_), HasSubstr("once more"));
  }
  EXPECT_EQ(Refusal(kOther, "a"), "");
  EXPECT_THAT(blame_.OnDeath(Program(kHostile, "a"), now_, now_), HasSubstr("quarantined"));
}

// As where a host is cut off: the program goes to the spare process as the first link ends, and then that one's ends.
TEST_F(CompileBlameTest, ProcessesThatEndOneRightAfterTheOtherCountOnceForAProgram) {
  blame_.OnDeath(Program(kHostile, "a"), now_, now_);
  const Time began = now_;
  now_ += kOneCause - milliseconds(1);
  EXPECT_THAT(blame_.OnDeath(Program(kHostile, "a"), began, now_), HasSubstr("once more"));
  EXPECT_EQ(Refusal(kOther, "a"), "");
  now_ += milliseconds(1);  // since the end that counted
  EXPECT_THAT(blame_.OnDeath(Program(kHostile, "a"), now_, now_), HasSubstr("quarantined"));
}

TEST_F(CompileBlameTest, AnOwnerWithACertificateDoesNotStartCleanInItsNextSession) {
  for (uint64_t i = 1; i <= 5; ++i)
    blame_.OnDeath(Program(SessionId(i), absl::StrCat("killer", i), "client/a"), now_, now_);
  const auto failure = blame_.Check(Program(SessionId(6), "next", "client/a"), now_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->message(), HasSubstr("client/a may compile nothing"));
  EXPECT_EQ(Refusal(SessionId(7)), "");
}

// What the allow-list leaves out, or settles, is no way around the quarantine.
TEST_F(CompileBlameTest, OptionsWithoutEffectAreNoOtherProgram) {
  const auto with = [](const std::string& debug_options, const std::string& platform = "cpu") {
    PendingCompile compile = Program(kHostile, "a");
    compile.platform = platform;
    xla::CompileOptionsProto options;
    google::protobuf::UnknownFieldSet fields;
    fields.AddLengthDelimited(3, debug_options);  // of the build options: the debug options
    xla::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
    build.GetReflection()->MutableUnknownFields(&build)->MergeFrom(fields);
    compile.request.set_options(options.SerializeAsString());
    return ProgramHash(compile);
  };
  const auto number = [](int field, uint64_t value) {
    google::protobuf::UnknownFieldSet fields;
    fields.AddVarint(field, value);
    std::string bytes;
    fields.SerializeToString(&bytes);
    return bytes;
  };
  EXPECT_NE(with(""), ProgramHash(Program(kHostile, "b")));
  EXPECT_EQ(with(number(9999, 1)), with("")) << "no XLA that we know has it";
  EXPECT_EQ(with(number(62, 1)), with("")) << "xla_gpu_ftz is nothing to CPUs";
  EXPECT_NE(with(number(62, 1), "cuda"), with("", "cuda"));
  EXPECT_NE(with(number(140, 1)), with("")) << "xla_cpu_enable_fast_min_max";
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
