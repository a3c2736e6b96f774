// The text form of programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "gangway/program/functions_test_util.h"
#include "gangway/program/random_program_test_util.h"

namespace gangway::program {
namespace {

using ::testing::HasSubstr;

constexpr char kExample[] =
    "program step # of a model\n"
    "%0: f32[2,3] = argument @0,1\n"
    "\n"
    "%1, %2: s32[]{pinned_host} = call jit:step(%0,donate %0, keep %0 ) @0,1 from "
    "\"t#.py:\\\"1\"#x\n"
    "  # a comment\n"
    "%3 = transfer %1 @2,3 {pinned_host} from \"t.py:2\"\n"
    "%4 = view %1[0],%3[1]\n"
    "%5 = replica of %1\n"
    "call log()@5\n"
    "result %3\n"
    "free %1, %2\n";

TEST(ProgramTextTest, PrintsAndParses) {
  auto program = Parse(kExample);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->name(), "step");
  EXPECT_EQ(program->nodes().size(), 8u);
  EXPECT_EQ(program->value_count(), 6u);
  EXPECT_EQ(program->argument_count(), 1u);
  EXPECT_EQ(program->result_count(), 1u);
  EXPECT_EQ(program->work_count(), 3u);
  EXPECT_EQ(program->functions(), (std::vector<std::string>{"jit:step", "log"}));
  EXPECT_EQ(program->sources(), (std::vector<std::string>{"t#.py:\"1", "t.py:2"}));
  EXPECT_EQ(program->nodes()[1].donated, std::vector<uint32_t>{1});
  EXPECT_EQ(program->nodes()[1].kept, std::vector<uint32_t>{2});
  EXPECT_EQ(program->shapes()[0].shard_bytes, 24u);
  EXPECT_EQ(program->values()[2].shape, 1u);
  EXPECT_EQ(Print(*program),
            "program step\n"
            "%0: f32[2,3] = argument @0,1\n"
            "%1, %2: s32[]{pinned_host} = call jit:step(%0, donate %0, keep %0) @0,1 from "
            "\"t#.py:\\\"1\"\n"
            "%3 = transfer %1 @2,3 {pinned_host} from \"t.py:2\"\n"
            "%4 = view %1[0], %3[1]\n"
            "%5 = replica of %1\n"
            "call log() @5\n"
            "result %3\n"
            "free %1, %2\n");
  EXPECT_TRUE(Parse("\n  # only a comment\n").ok());
}

TEST(ProgramTextTest, QuotesNamesThatAreNotThoseOfFunctions) {
  const Program program("my \"step\"\n");
  EXPECT_EQ(Print(program), "program \"my \\\"step\\\"\\n\"\n");
  EXPECT_EQ(Parsed(Print(program)), program);
}

struct Mistake {
  std::string text, why;
};

TEST(ProgramTextTest, SaysWhichLineIsWrongAndWhy) {
  for (const auto& [text, why] : std::vector<Mistake>{
           {"%0 = argument @0\n%2 = transfer %0 @1", "line 2: defines %2 where %1"},
           {"%0 = jump",
            "line 1: expected argument, call, transfer, view, replica, result or free"},
           {"jump", "expected argument, call, transfer, view, replica, result or free"},
           {"%0 = arguments", "expected argument"},
           {"%0 = argument @", "a device number"},
           {"%0 = call f(%0 %1) @0", "',' or ')'"},
           {"%0 = call f", "'('"},
           {"result 5", "a value like %0"},
           {"result %", "a number after %"},
           {"result %99999999999", "a number after %"},
           {"%0 argument @1", "'='"},
           {"%0, %1 = argument @1", "one value on the left"},
           {"argument @1", "one value on the left"},
           {"%0 = result %0", "no value on the left"},
           {"%0 = argument @1 x", "the end of the line"},
           {"%0: f33[2] = argument", "a shape like f32[2,3]"},
           {"%0: f32 = argument", "a shape like f32[2,3]"},
           {"%0: f32[2 3] = argument", "',' or ']'"},
           {"%0: f32[-1] = argument", "a dimension"},
           {"%0: f32[4611686018427387904] = argument", "line 1: "},
           {"%0: f32[2]{x = argument", "'}'"},
           {"%0 = view %0", "a shard like [0]"},
           {"%0 = view %0[x]", "a shard like [0]"},
           {"%0 = replica %0", "'of'"},
           {"%0 = argument from t.py", "a source in quotes"},
           {"%0 = argument from \"t.py", "a source in quotes"},
           {"%0 = argument from \"\\", "a source in quotes"},
           {"program a b", "the end of the line"},
           {"program #", "a name"},
           {"program a\nprogram b", "line 2: expected argument"}}) {
    auto program = Parse(text);
    ASSERT_FALSE(program.ok()) << text;
    EXPECT_THAT(std::string(program.status().message()), HasSubstr(why)) << text;
  }
}

TEST(ProgramTextTest, ParseIsTheInverseOfPrint) {
  EXPECT_TRUE(rc::check([] {
    const RandomProgram random = DrawProgram();
    const auto bound = Bind(random.program, random.arguments, random.Types());
    const auto lowered = Lower(random.program, random.arguments, random.Types());
    RC_ASSERT(bound.ok());
    RC_ASSERT(lowered.ok());
    for (const Program& program : {random.program, *bound, *lowered}) {
      RC_ASSERT(Verify(program).ok());
      const auto parsed = Parse(Print(program));
      RC_ASSERT(parsed.ok());
      RC_ASSERT(*parsed == program);
    }
  }));
}

TEST(ProgramTextTest, NoTextBreaksTheParser) {
  EXPECT_TRUE(rc::check([] {
    auto text = *rc::gen::container<std::string>(rc::gen::element(
        '%', '0', '9', '=', ' ', ',', '@', '\n', '(', ')', '[', ']', '{', '}', ':', '"', 'c', '#'));
    auto parsed = Parse(text);
    if (parsed.ok()) RC_ASSERT(Verify(*parsed).ok() || !Verify(*parsed).message().empty());
  }));
}

}  // namespace
}  // namespace gangway::program
