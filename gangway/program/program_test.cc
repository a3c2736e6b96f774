// Building and verifying programs, and the interpreter.
#include "gangway/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/program/functions_test_util.h"
#include "gangway/program/interpreter.h"

namespace gangway::program {
namespace {

using ::testing::HasSubstr;

Program Example() {
  Program program("example");
  const ValueId x = program.AddArgument({0, 1});
  const ValueId y = program.AddCall("step", {x, x}, {}, 2, {0, 1});
  const ValueId z = program.AddTransfer(y, {2, 3});
  program.AddResult(program.AddCall("sum", {z, z}, {}, 1, {2, 3}));
  const ValueId view = program.AddView({z, y + 1}, {1, 0});
  program.AddResult(view);
  program.AddResult(program.AddView({view}, {}));
  program.AddResult(y + 1);
  return program;
}

TEST(ProgramTest, EqualEntriesAreOne) {
  const Program program = Example();
  EXPECT_EQ(program.functions(), (std::vector<std::string>{"step", "sum"}));
  EXPECT_EQ(program.device_lists(), (std::vector<Devices>{{0, 1}, {2, 3}}));
  EXPECT_EQ(program.argument_count(), 1u);
  EXPECT_EQ(program.result_count(), 4u);
  EXPECT_EQ(program.work_count(), 3u);
  EXPECT_EQ(program.value_count(), 7u);
  EXPECT_EQ(program.values()[2], (Value{.node = 1, .devices = 0}));
  EXPECT_EQ(program.values()[6], (Value{.node = 7}));
}

TEST(ProgramTest, ACopyIsAProgramOfItsOwn) {
  const Program program = Example();
  Program copy = program;
  EXPECT_EQ(copy, program);
  EXPECT_EQ(copy.FunctionNamed("sum"), 1u);
  EXPECT_EQ(copy.FunctionNamed("new"), 2u);
  EXPECT_NE(copy, program);
  EXPECT_EQ(program.functions().size(), 2u);
}

TEST(ProgramTest, DescribesNodes) {
  Program program = Parsed("%0 = argument\n%1 = call f(%0) from \"t.py:1\"\n");
  EXPECT_EQ(program.Describe(0), "node 0 (argument)");
  EXPECT_EQ(program.Describe(1), "node 1 (call f, t.py:1)");
  EXPECT_EQ(program.Describe(1, "jit_f"), "node 1 (call jit_f, t.py:1)");
  program.Add({.kind = Kind::kCall, .function = 9, .source = 9});
  EXPECT_EQ(program.Describe(2), "node 2 (call)");
  program.SetSource(std::string(1000, 'x'));
  EXPECT_EQ(program.Describe(2), "node 2 (call, " + std::string(256, 'x') + "...)");
}

TEST(ProgramVerifyTest, AcceptsTheExample) { EXPECT_TRUE(Verify(Example()).ok()); }

struct Mistake {
  std::string text, why;
};

TEST(ProgramVerifyTest, NamesTheNodeAndTheRule) {
  for (const auto& [text, why] : std::vector<Mistake>{
           {"result %0", "node 0 (result) uses %0, which is not defined before it"},
           {"%0 = call f(%0)", "node 0 (call f) uses %0, which is not defined before it"},
           {"%0 = argument @0\n%1 = call f(donate %0) @0\nresult %0 from \"t.py:3\"",
            "node 2 (result, t.py:3) uses %0, which was donated before"},
           {"%0 = argument\nfree %0\nresult %0", "node 2 (result) uses %0, which was freed before"},
           {"%0 = argument\nfree %0, %0", "node 1 (free) uses %0, which was freed before"},
           {"%0 = argument\n%1 = call f(donate %0)\nfree %0",
            "node 2 (free) uses %0, which was donated before"},
           {"%0 = argument @0\n%1 = call f(%0, donate %0) @0",
            "node 1 (call f) donates %0 and uses it twice"},
           {"%0 = argument @0\n%1 = call f(donate %0, donate %0) @0",
            "node 1 (call f) donates %0 and uses it twice"},
           {"%0 = argument @0\n%1 = call f(donate keep %0) @0",
            "node 1 (call f) donates and keeps input 0"},
           {"%0 = argument @0,0", "node 0 (argument) names a device twice"},
           {"%0 = argument @0,1\n%1 = transfer %0 @2",
            "node 1 (transfer) moves 2 shards to 1 devices"},
           {"%0 = argument\n%1 = transfer %0", "node 1 (transfer) names no devices"},
           {"%0 = argument\n%1 = transfer %0 @1 {a b}", "node 1 (transfer) names the memory 'a b'"},
           {"%0 = argument\n%1 = call f(%0) @1 {x}", "node 1 (call f) names the memory 'x'"},
           {"%0 = call f g() @0", "calls 'f g'"},
           {"%0 = call () @0", "calls ''"},
           {"call f()\n%0 = argument", "node 1 (argument) is an argument behind other nodes"},
           {"%0 = argument\nresult %0 @1", "node 1 (result) has no output but names devices"},
           {"%0 = argument\nfree %0 @1", "node 1 (free) has no output but names devices"},
           {"%0 = argument @4,5\n%1 = view %0[0], %0[2]",
            "node 1 (view) takes shard 2 of %0, which has 2"},
           {"%0 = argument @4,5\n%1 = view %0[1], %0[0] @5,6",
            "node 1 (view) takes shard 0 of %0, which is on device 4, for device 6"},
           {"%0 = argument\n%1 = view %0[1] @5,6", "node 1 (view) names 1 shards for 2 devices"},
           {"%0 = argument\n%1 = replica of %0 @5,6",
            "node 1 (view) names 1 shards for 2 devices"}}) {
    EXPECT_THAT(std::string(Verify(Parsed(text)).message()), HasSubstr(why)) << text;
  }
}

TEST(ProgramVerifyTest, RulesAboutDevicesHoldWhereTheyAreKnown) {
  EXPECT_EQ(Verify(Parsed("%0 = argument\n"
                          "%1 = transfer %0 @1,2,3\n"
                          "%2 = view %0[7], %1[2]\n"
                          "%3 = view %0[7], %1[2] @9,3\n"
                          "%4 = replica of %1 @2\n"
                          "%5 = call f(%4, keep %4)\n")),
            absl::OkStatus());
}

// Each view answers for its own shards.
TEST(ProgramVerifyTest, DonationReachesWhatSharesShards_OB1) {
  const std::string views =
      "%0 = argument\n"
      "%1 = view %0[0], %0[1]\n"
      "%2 = view %0[2]\n"
      "%3 = view %1[1], %2[0]\n"
      "%4 = replica of %0\n";
  for (const auto& [text, why] : std::vector<Mistake>{
           {"call f(donate %0)\ncall g(%1)",
            "node 6 (call g) uses %1, of which a shard was donated"},
           {"call f(donate %0)\ncall g(%3)",
            "node 6 (call g) uses %3, of which a shard was donated"},
           {"call f(donate %0)\ncall g(%4)",
            "node 6 (call g) uses %4, of which a shard was donated"},
           {"call f(donate %0)\n%5 = view %0[1]", "takes shard 1 of %0, which was donated before"},
           {"call f(donate %2)\ncall g(%0)",
            "node 6 (call g) uses %0, of which a shard was donated"},
           {"call f(donate %2)\ncall g(%3)",
            "node 6 (call g) uses %3, of which a shard was donated"},
           {"call f(donate %2)\n%5 = view %3[0], %3[1]",
            "takes shard 1 of %3, which was donated before"},
           {"call f(donate %2)\n%5 = view %0[2]", "takes shard 2 of %0, which was donated before"},
           {"call f(donate %3)\nresult %1",
            "node 6 (result) uses %1, of which a shard was donated"},
           {"call f(donate %4)\nresult %0",
            "node 6 (result) uses %0, of which a shard was donated"},
           {"call f(donate %2, %3)", "node 5 (call f) donates a shard of %3 and uses it twice"},
           {"call f(donate %0, %4)", "node 5 (call f) donates a shard of %4 and uses it twice"},
           {"call f(donate %2, donate %0)", "node 5 (call f) donates a shard of %2 and uses it"},
           {"%5 = view %3[2]", "node 5 (view) takes shard 2 of %3, which has 2"}}) {
    EXPECT_THAT(std::string(Verify(Parsed(views + text)).message()), HasSubstr(why)) << text;
  }
  for (const char* text :
       {"call f(donate %2)\ncall g(%1, %4)\n%5 = view %3[0], %0[0]\nfree %0, %3",
        "call f(donate %1)\ncall g(%2)\n%5 = view %0[2]", "call f(donate %4)\ncall g(%3)"}) {
    EXPECT_EQ(Verify(Parsed(views + text)), absl::OkStatus()) << text;
  }
}

// What no text says.
TEST(ProgramVerifyTest, RefusesNodesThatNoTextMakes) {
  const std::vector<std::pair<Node, std::string>> nodes = {
      {{.source = 7, .output_count = 1}, "names source 7 of 1"},
      {{.devices = 7, .output_count = 1}, "names list 7 of 1 lists of devices"},
      {{.devices = 0, .output_count = 1}, "names no device"},
      {{.output_count = 2}, "has the wrong number of outputs"},
      {{.inputs = {0}, .output_count = 1}, "has the wrong number of inputs"},
      {{.donated = {0}, .output_count = 1},
       "is not a call but names a function, donates or is irregular"},
      {{.kept = {0}, .output_count = 1},
       "is not a call but names a function, donates or is irregular"},
      {{.shards = {0}, .output_count = 1}, "is not a view but names shards"},
      {{.kind = Kind::kResult}, "has the wrong number of inputs"},
      {{.kind = Kind::kFree}, "has the wrong number of inputs"},
      {{.kind = Kind::kCall, .function = 1}, "calls function 1 of 1"},
      {{.kind = Kind::kCall, .donated = {0}}, "donates input 0, which it does not have"},
      {{.kind = Kind::kCall, .kept = {0}}, "keeps input 0, which it does not have"},
      {{.kind = Kind::kCall, .inputs = {0, 0}, .donated = {1, 0}}, "donates indices that do not"},
      {{.kind = Kind::kCall, .inputs = {0, 0}, .kept = {1, 1}}, "keeps indices that do not"},
      {{.kind = Kind::kView, .output_count = 1}, "is a view of nothing"},
      {{.kind = Kind::kView, .inputs = {0, 0}, .output_count = 1}, "is a replica of 2 values"},
      {{.kind = Kind::kView, .inputs = {0}, .shards = {0, 1}, .output_count = 1},
       "names 2 shards of 1 values"}};
  for (const auto& [node, why] : nodes) {
    Program program;
    program.FunctionNamed("f");
    program.SourceNamed("t.py:1");
    program.ListOf({});
    program.AddArgument();
    program.Add(node);
    EXPECT_THAT(std::string(Verify(program).message()), HasSubstr(why));
  }
}

// Output k at position i: "function.k(argument shards)".
absl::StatusOr<std::vector<std::vector<std::string>>> Spell(
    const Call& call, const std::vector<const Array*>& inputs) {
  std::vector<std::vector<std::string>> outputs(call.output_count);
  for (uint32_t k = 0; k < call.output_count; ++k) {
    for (size_t i = 0; i < call.devices.size(); ++i) {
      std::string text = call.function + "." + std::to_string(k) + "(";
      for (const Array* input : inputs) text += input->shards[i];
      outputs[k].push_back(text + ")");
    }
  }
  return outputs;
}

TEST(InterpreterTest, EvaluatesInOrder_DF3) {
  const auto results = Interpret(Example(), {{{0, 1}, {"a", "b"}}}, Spell);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 4u);
  EXPECT_EQ((*results)[0],
            (Array{{2, 3}, {"sum.0(step.0(aa)step.0(aa))", "sum.0(step.0(bb)step.0(bb))"}}));
  EXPECT_EQ((*results)[1], (Array{{3, 0}, {"step.0(bb)", "step.1(aa)"}}));
  EXPECT_EQ((*results)[2], (Array{{3}, {"step.0(bb)"}}));
  EXPECT_EQ((*results)[3], (Array{{0, 1}, {"step.1(aa)", "step.1(bb)"}}));
}

TEST(InterpreterTest, AResultOutlivesWhatIsFreedOrDonated) {
  const auto results = Interpret(Parsed("%0 = argument\n"
                                        "result %0\n"
                                        "%1 = view %0[1]\n"
                                        "result %1\n"
                                        "%2 = call f(donate %0) @7\n"
                                        "result %2\n"
                                        "free %2\n"),
                                 {{{0, 1}, {"a", "b"}}}, Spell);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, (std::vector<Array>{{{0, 1}, {"a", "b"}}, {{1}, {"b"}}, {{7}, {"f.0(a)"}}}));
}

TEST(InterpreterTest, RefusesWhatDoesNotFit) {
  const auto why = [](std::string_view text, const Evaluate& evaluate = Spell) {
    return std::string(
        Interpret(Parsed(text), {{{0, 1}, {"a", "b"}}}, evaluate).status().message());
  };
  EXPECT_EQ(why("%0 = argument\n%1 = argument"), "node 1 (argument): the argument is missing");
  EXPECT_EQ(why("%0 = argument @0,2"), "node 0 (argument): the argument is on other devices");
  EXPECT_EQ(why("%0 = argument\n%1 = call f(%0)"), "node 1 (call f): its devices are not known");
  EXPECT_EQ(why("%0 = argument\n%1 = view %0[2]"),
            "node 1 (view): takes shard 2 of %0, which has 2");
  EXPECT_EQ(why("%0 = argument\n%1 = view %0[1] @5"),
            "node 1 (view): its shards are on other devices");
  EXPECT_EQ(why("%0 = argument\n%1 = transfer %0 @2"),
            "node 1 (transfer): moves 2 shards to 1 devices");
  const auto nothing = [](const Call&, const std::vector<const Array*>&) {
    return std::vector<std::vector<std::string>>{};
  };
  EXPECT_EQ(why("%0 = call f() @0", nothing), "node 0 (call f): gave 0 outputs, the call has 1");
  const auto one = [](const Call&, const std::vector<const Array*>&) {
    return std::vector<std::vector<std::string>>{{"x"}};
  };
  EXPECT_EQ(why("%0 = call f() @0,1", one), "node 0 (call f): gave 1 shards on 2 devices");
  EXPECT_EQ(why("result %3"), "node 0 (result) uses %3, which is not defined before it");
}

}  // namespace
}  // namespace gangway::program
