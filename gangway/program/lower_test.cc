// All passes together.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "absl/strings/str_cat.h"

#include "gangway/program/functions_test_util.h"
#include "gangway/program/interpreter.h"
#include "gangway/program/random_program_test_util.h"

namespace gangway::program {
namespace {

std::string Lowered(std::string_view text, const std::vector<ArgumentType>& arguments = {}) {
  const TestFunctions functions;
  return TextOf(Lower(Parsed(text), arguments, functions.Types()));
}

TEST(LowerTest, MakesAProgramThatCanBeLaunched) {
  EXPECT_EQ(Lowered("program step\n"
                    "%0 = argument\n"
                    "%1 = call f(%0)\n"
                    "%2 = call f(%1)\n"
                    "%3 = call take_far(%1, %2) from \"t.py:3\"\n"
                    "result %3\n",
                    {{.shape = F32(2), .devices = {0, 1}}}),
            "program step\n"
            "%0: f32[2] = argument @0,1\n"
            "%1: f32[2] = call f(%0) @0,1\n"
            "%2: f32[2] = transfer %1 @2,3 from \"t.py:3\"\n"
            "%3: f32[2] = call f(%1) @0,1\n"
            "free %1\n"
            "%4: f32[2] = transfer %3 @2,3 from \"t.py:3\"\n"
            "free %3\n"
            "%5: f32[2] = call take_far(donate %2, %4) @2,3 from \"t.py:3\"\n"
            "free %4\n"
            "result %5\n"
            "free %5\n");
}

TEST(LowerTest, RefusesWhatAPassRefuses) {
  EXPECT_EQ(Lowered("result %0\n"), "node 0 (result) uses %0, which is not defined before it");
  EXPECT_EQ(Lowered("%0 = argument\n%1 = call add(%0)\n"),
            "node 1 (call my_add) has 1 inputs, its function takes 2");
  EXPECT_EQ(Lowered("%0 = argument @0,1\n%1 = call one(%0)\n"),
            "node 1 (call one) runs on devices 0 and takes %0 as input 0, which has another number "
            "of shards, on devices 0,1");
}

// What a call donates is known only when its function is.
TEST(LowerTest, VerifiesWhatIsDonated) {
  EXPECT_EQ(Lowered("%0 = argument\n%1 = call take(%0)\n%2 = call f(%0) from \"t.py:2\"\n"),
            "node 2 (call f, t.py:2) uses %0, which was donated before");
  EXPECT_EQ(Lowered("%0 = argument\n%1, %2 = call pair(%0, %0)\n"),
            "node 1 (call pair) donates %0 and uses it twice");
  EXPECT_EQ(Lowered("%0 = argument\n%1 = call take(keep %0)\n%2 = call f(%0)\n"),
            "%0 = argument\n"
            "%1: f32[2] = call take(%0) @0,1\n"
            "free %1\n"
            "%2: f32[2] = call f(%0) @0,1\n"
            "free %2\n");
}

TEST(LowerTest, VerifiesWhereViewsAre) {
  EXPECT_EQ(Lowered("%0 = argument @0,1\n%1 = view %0[0], %0[0]\n"),
            "node 1 (view) names a device twice");
}

// Output k at position i: "function.k(argument shards)".
absl::StatusOr<std::vector<std::vector<std::string>>> Spell(
    const Call& call, const std::vector<const Array*>& inputs) {
  std::vector<std::vector<std::string>> outputs(call.output_count);
  for (uint32_t k = 0; k < call.output_count; ++k) {
    for (size_t i = 0; i < call.devices.size(); ++i) {
      std::string text = absl::StrCat(call.function, ".", k, "(");
      for (const Array* input : inputs) {
        const std::string& shard = input->shards[i];
        absl::StrAppend(&text, shard.size(), ":", shard.substr(0, 100),
                        std::hash<std::string>()(shard));
      }
      outputs[k].push_back(text + ")");
    }
  }
  return outputs;
}

TEST(LowerTest, ChangesNoResult_DF3) {
  EXPECT_TRUE(rc::check([] {
    const RandomProgram random = DrawProgram();
    const auto lowered = Lower(random.program, random.arguments, random.Types());
    if (!lowered.ok()) RC_FAIL(lowered.status().ToString() + Print(random.program));
    RC_ASSERT(Verify(*lowered).ok());
    // Donation and devices are part of what Bind finds.
    const auto bound = Bind(random.program, random.arguments, random.Types());
    std::vector<Array> arguments;
    for (const ArgumentType& type : random.arguments) {
      Array& argument = arguments.emplace_back(Array{.devices = type.devices});
      for (uint32_t device : type.devices)
        argument.shards.push_back(absl::StrCat("a", arguments.size(), "@", device));
    }
    const auto expected = Interpret(*bound, arguments, Spell);
    const auto found = Interpret(*lowered, arguments, Spell);
    RC_ASSERT(expected.ok());
    RC_ASSERT(found.ok());
    RC_ASSERT(*found == *expected);
  }));
}

// A pass that took time in proportion to the square of the nodes, or to nodes times devices, would not end here.
TEST(LowerTest, ManyNodesOverManyDevices) {
  constexpr uint32_t kNodes = 16384;
  constexpr uint32_t kDevices = 2048;
  FunctionType type{.parameters = {F32(2), F32(2)}, .results = {F32(2)}, .donated = {0}};
  ArgumentType argument{.shape = F32(2)};
  for (uint32_t device = 0; device < kDevices; ++device) {
    type.devices.push_back(device);
    argument.devices.push_back(kDevices + device);
  }
  Program program;
  const ValueId far = program.AddArgument();
  ValueId last = program.AddCall("f", {far, far}, {}, 1);
  program.SetKept({0});
  while (program.nodes().size() < kNodes) {
    last = program.AddCall("f", {last, far}, {}, 1);
    program.SetSource(absl::StrCat("t.py:", program.nodes().size() % 100));
  }
  program.AddResult(last);
  const auto lowered =
      Lower(program, std::vector{argument}, [&type](const std::string&) { return &type; });
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  // One transfer for all, and a free of it and of the result.
  EXPECT_EQ(lowered->nodes().size(), kNodes + 4);
  EXPECT_EQ(lowered->device_lists().size(), 2u);
  EXPECT_EQ(lowered->sources().size(), 100u);
}

}  // namespace
}  // namespace gangway::program
