// Text form, verifier and interpreter of programs.
#include "gangway/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "gangway/program/interpreter.h"

namespace gangway::program {
namespace {

using ::testing::HasSubstr;

constexpr char kExample[] =
    "%0 = argument @0,1\n"
    "%1, %2 = call jit:step(%0, donate %0) @0,1\n"
    "%3 = transfer %1 @2,3\n"
    "call log()@5\n"
    "result %3\n";

Program Example() {
  Program program;
  ValueId x = program.AddArgument({0, 1});
  ValueId y = program.AddCall("step", {x, x}, {}, 2, {0, 1});
  ValueId z = program.AddTransfer(y, {2, 3});
  program.AddResult(program.AddCall("sum", {z, z}, {}, 1, {2, 3}));
  program.AddResult(y + 1);
  return program;
}

// Output k at position i: "executable.k(argument shards)".
absl::StatusOr<std::vector<std::vector<std::string>>> Spell(
    const Node& call, const std::vector<const Array*>& inputs) {
  std::vector<std::vector<std::string>> outputs(call.output_count);
  for (uint32_t k = 0; k < call.output_count; ++k) {
    for (size_t i = 0; i < call.devices.size(); ++i) {
      std::string text = call.executable + "." + std::to_string(k) + "(";
      for (const Array* input : inputs) text += input->shards[i];
      outputs[k].push_back(text + ")");
    }
  }
  return outputs;
}

TEST(ProgramTextTest, PrintsAndParses) {
  auto program = Parse(kExample);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->nodes().size(), 5u);
  EXPECT_EQ(program->value_count(), 4u);
  EXPECT_EQ(program->nodes()[1].executable, "jit:step");
  EXPECT_EQ(program->nodes()[1].donated, std::vector<uint32_t>{1});
  EXPECT_EQ(Print(*program),
            "%0 = argument @0,1\n%1, %2 = call jit:step(%0, donate %0) @0,1\n"
            "%3 = transfer %1 @2,3\ncall log() @5\nresult %3\n");
  EXPECT_TRUE(Parse("\n  # only a comment\n").ok());
}

TEST(ProgramTextTest, SaysWhichLineIsWrongAndWhy) {
  for (auto [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"%0 = argument @0\n%2 = transfer %0 @1", "line 2: defines %2 where %1"},
           {"%0 = argument", "line 1: expected argument, call, transfer or result"},
           {"%0 = argument @", "a device number"},
           {"%0 = call f(%0 %1) @0", "',' or ')'"},
           {"%0 = call f", "'('"},
           {"result 5", "a value like %0"},
           {"result %", "a number after %"},
           {"result %99999999999", "a number after %"},
           {"%0 argument @1", "'='"},
           {"%0, %1 = argument @1", "one value on the left"},
           {"%0 = argument @1 x", "the end of the line"},
           {"jump", "a value like %0"}}) {
    auto program = Parse(text);
    ASSERT_FALSE(program.ok()) << text;
    EXPECT_THAT(std::string(program.status().message()), HasSubstr(why)) << text;
  }
}

TEST(ProgramVerifyTest, AcceptsTheExample) { EXPECT_TRUE(Verify(Example()).ok()); }

TEST(ProgramVerifyTest, NamesTheNodeAndTheRule) {
  for (auto [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"result %0", "node 0 uses %0, which is not defined"},
           {"%0 = argument @0\n%1 = call f(donate %0) @0\nresult %0",
            "node 2 uses %0, which was donated"},
           {"%0 = argument @0\n%1 = call f(%0, donate %0) @0",
            "node 1 donates %0 and uses it twice"},
           {"%0 = argument @0,0", "names a device twice"},
           {"%0 = argument @0,1\n%1 = transfer %0 @2", "moves 2 shards to 1 devices"},
           {"%0 = call f g() @0", "calls 'f g'"},
           {"%0 = call () @0", "calls ''"}}) {
    auto program = Parse(text);
    ASSERT_TRUE(program.ok()) << text << program.status();
    EXPECT_THAT(std::string(Verify(*program).message()), HasSubstr(why)) << text;
  }
  Program no_devices;
  no_devices.AddArgument({});
  EXPECT_THAT(std::string(Verify(no_devices).message()), HasSubstr("names no device"));
  Program bad_donation;
  bad_donation.AddCall("f", {}, {0}, 1, {0});
  EXPECT_THAT(std::string(Verify(bad_donation).message()), HasSubstr("donates input 0"));
}

TEST(InterpreterTest, EvaluatesInOrder_DF3) {
  auto results = Interpret(Example(), {{{0, 1}, {"a", "b"}}}, Spell);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2u);
  EXPECT_EQ((*results)[0],
            (Array{{2, 3}, {"sum.0(step.0(aa)step.0(aa))", "sum.0(step.0(bb)step.0(bb))"}}));
  EXPECT_EQ((*results)[1], (Array{{0, 1}, {"step.1(aa)", "step.1(bb)"}}));
}

TEST(InterpreterTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(std::string(Interpret(Example(), {}, Spell).status().message()),
              HasSubstr("missing"));
  EXPECT_THAT(std::string(Interpret(Example(), {{{0, 2}, {"a", "b"}}}, Spell).status().message()),
              HasSubstr("other devices"));
  auto nothing = [](const Node&, const std::vector<const Array*>&) {
    return std::vector<std::vector<std::string>>{};
  };
  EXPECT_THAT(std::string(Interpret(Example(), {{{0, 1}, {"a", "b"}}}, nothing).status().message()),
              HasSubstr("gave 0 outputs"));
  Program broken;
  broken.AddResult(3);
  EXPECT_FALSE(Interpret(broken, {}, Spell).ok());
}

// A program that verifies, from random choices.
Program RandomProgram() {
  using rc::gen::inRange;
  Program program;
  std::vector<std::pair<ValueId, size_t>> usable;  // and its number of devices
  auto devices = [](size_t count) {
    std::vector<uint32_t> list(8);
    std::iota(list.begin(), list.end(), 0);
    std::rotate(list.begin(), list.begin() + *inRange(0, 8), list.end());
    list.resize(count);
    return list;
  };
  int nodes = *inRange(0, 12);
  for (int i = 0; i < nodes; ++i) {
    int kind = usable.empty() ? 0 : *inRange(0, 4);
    size_t pick = usable.empty() ? 0 : *inRange<size_t>(0, usable.size());
    if (kind == 0) {
      size_t count = *inRange<size_t>(1, 5);
      usable.emplace_back(program.AddArgument(devices(count)), count);
    } else if (kind == 1) {
      auto [input, count] = usable[pick];
      usable.emplace_back(program.AddTransfer(input, devices(count)), count);
    } else if (kind == 2) {
      program.AddResult(usable[pick].first);
    } else {
      bool donate = *rc::gen::arbitrary<bool>();
      size_t count = *inRange<size_t>(1, 5);
      uint32_t outputs = *inRange<uint32_t>(0, 3);
      std::string name = *rc::gen::nonEmpty(
          rc::gen::container<std::string>(rc::gen::element('a', 'Z', '_', ':', '/')));
      ValueId first = program.AddCall(name, {usable[pick].first},
                                      donate ? std::vector<uint32_t>{0} : std::vector<uint32_t>{},
                                      outputs, devices(count));
      if (donate) usable.erase(usable.begin() + pick);
      for (uint32_t k = 0; k < outputs; ++k) usable.emplace_back(first + k, count);
    }
  }
  return program;
}

TEST(ProgramTextTest, ParseIsTheInverseOfPrint) {
  EXPECT_TRUE(rc::check([] {
    Program program = RandomProgram();
    RC_ASSERT(Verify(program).ok());
    auto parsed = Parse(Print(program));
    RC_ASSERT(parsed.ok());
    RC_ASSERT(*parsed == program);
  }));
}

TEST(ProgramTextTest, NoTextBreaksTheParser) {
  EXPECT_TRUE(rc::check([] {
    auto text = *rc::gen::container<std::string>(
        rc::gen::element('%', '0', '9', '=', ' ', ',', '@', '\n', '(', ')', 'c', '#'));
    auto parsed = Parse(text);
    if (parsed.ok()) RC_ASSERT(Verify(*parsed).ok() || !Verify(*parsed).message().empty());
  }));
}

}  // namespace
}  // namespace gangway::program
