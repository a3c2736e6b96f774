// Tests of programs.h, through a whole controller: what is registered, and what is refused then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::HasSubstr;

class ProgramsTest : public ControllerTest {
 protected:
  void SetUp() override {
    Make(Reach::kIsland);
    HaveProgram(5, {0, 1});
    HaveProgram(6, {2, 3});
  }

  static constexpr int kInvalid = static_cast<int>(StatusCode::kInvalidArgument);
  static constexpr int kExhausted = static_cast<int>(StatusCode::kResourceExhausted);
};

TEST_F(ProgramsTest, ARegistrationSaysWhichNodeIsWrongAndWhy) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"%0 = argument\n%1 = call 7(%0)\nresult %1", "executable handle 7 is not known"},
      {"%0 = argument\n%1, %2 = call 5(%0)\nresult %1", "node 1"},
      {"%0 = argument\n%1 = call 5(%0, %0)\nresult %1", "node 1"},
      {"%0 = argument\n%1 = transfer %0 @99\nresult %1", "device 99"},
      {"%0 = argument\n%1 = call 5(%0)\n%2 = transfer %1 @2\nresult %2", "node 2"},
      {"%0 = argument\n%1 = call 5(%0)\n%2 = view %1[2]\nresult %2", "node 2"}};
  uint64_t handle = 100;
  for (const auto& [text, why] : wrong) {
    const wire::Failure failure = Register(++handle, "program train\n" + text);
    EXPECT_EQ(failure.code(), kInvalid) << text;
    EXPECT_THAT(failure.message(), HasSubstr(why)) << text;
    EXPECT_EQ(failure.launched_program(), "train");
  }
  EXPECT_TRUE(items_.empty());
}

TEST_F(ProgramsTest, AnExecutableThatIsBeingCompiledIsRefused) {
  Compile(7, {0, 1});
  EXPECT_THAT(Register(1, "%0 = argument\n%1 = call 7(%0)\nresult %1").message(),
              HasSubstr("still being compiled"));
}

TEST_F(ProgramsTest, ExecutablesOfOthersAreUnknown_OB3) {
  const wire::Failure failure =
      Register(1, "%0 = argument\n%1 = call 5(%0)\nresult %1", {}, /*session=*/2);
  EXPECT_THAT(failure.message(), HasSubstr("not known in this session"));
}

TEST_F(ProgramsTest, AHandleInUseKeepsItsProgram) {
  const std::string text = "%0 = argument\n%1 = call 5(%0)\nresult %1";
  ASSERT_EQ(Register(1, text).code(), 0);
  EXPECT_THAT(Register(1, "%0 = argument\nresult %0").message(), HasSubstr("in use already"));
  EXPECT_THAT(Register(0, text).message(), HasSubstr("is 0 or"));
  work_counts_[1] = 1;
  Have(10, {0, 1});
  Launch(1, {10}, {20});
  EXPECT_NE(last_ordinal(), 0u);
}

TEST_F(ProgramsTest, ArgumentsAreCheckedByTheArraysThatTheyAreLike) {
  Have(10, {0, 1});
  Have(11, {0});
  const std::string text = "%0 = argument\n%1 = transfer %0 @2,3\nresult %1";
  EXPECT_EQ(Register(1, text, {10}).code(), 0);
  EXPECT_EQ(Register(2, text, {999}).code(), 0) << "it is not known";
  const wire::Failure failure = Register(3, text, {11});
  EXPECT_EQ(failure.code(), kInvalid);
  EXPECT_THAT(failure.message(), HasSubstr("node 1"));
}

TEST_F(ProgramsTest, ProgramsAreBoundedInNumber_TM2) {
  const std::string text = "%0 = argument\nresult %0";
  for (uint64_t handle = 1; handle <= kProgramsMax; ++handle)
    ASSERT_EQ(Register(handle, text).code(), 0);
  EXPECT_EQ(Register(kProgramsMax + 1, text).code(), kExhausted);
  EXPECT_EQ(Register(1, text, {}, /*session=*/2).code(), 0) << "of each session";
  wire::Op drop;
  drop.mutable_drop_programs()->add_handles(7);
  drop.mutable_drop_programs()->add_handles(9999);  // unknown
  Do(drop);
  EXPECT_EQ(Register(kProgramsMax + 2, text).code(), 0);
}

TEST_F(ProgramsTest, ProgramsAreBoundedInNodes_TM2) {
  std::string text = "%0 = argument\n";
  for (int i = 1; i <= 16000; ++i) absl::StrAppend(&text, "%", i, " = call 5(%", i - 1, ")\n");
  uint64_t handle = 0, registered = 0;
  while (registered <= kProgramSizeMax) {
    if (Register(++handle, text).code() != 0) break;
    registered += 32001;
  }
  EXPECT_LE(registered, kProgramSizeMax);
  EXPECT_GT(registered, kProgramSizeMax / 2);
  EXPECT_EQ(Register(++handle, text).code(), kExhausted);
  EXPECT_THAT(Register(++handle, text).message(), HasSubstr("would pass the limit of"));
  wire::Op drop;
  drop.mutable_drop_programs()->add_handles(1);
  Do(drop);
  EXPECT_EQ(Register(++handle, text).code(), 0) << "what is dropped makes room";
}

TEST_F(ProgramsTest, ASessionsProgramsEndWithIt_OB2) {
  ASSERT_EQ(Register(1, "%0 = argument\nresult %0").code(), 0);
  Step(SessionLost{SessionId(1)});
  Step(SessionOpened{SessionId(1), "again"});
  Launch(1, {}, {20});
  EXPECT_THAT(Await({20})->message(), HasSubstr("program handle 1 is not known"));
}

}  // namespace
}  // namespace gangway::controller
