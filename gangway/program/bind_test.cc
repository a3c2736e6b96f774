// Bind, in text form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/program/functions_test_util.h"

namespace gangway::program {
namespace {

std::string Bound(std::string_view text, const std::vector<ArgumentType>& arguments = {}) {
  const TestFunctions functions;
  return TextOf(Bind(Parsed(text), arguments, functions.Types()));
}

TEST(BindTest, FindsShapesAndDevices) {
  EXPECT_EQ(Bound("program step\n"
                  "%0 = argument\n"
                  "%1 = call f(%0) from \"t.py:1\"\n"
                  "%2 = transfer %1 @2,3 {pinned_host}\n"
                  "%3 = transfer %2 @4,5\n"
                  "%4, %5 = call pair(keep %1, %0)\n"
                  "call log(%5)\n"
                  "result %3\n",
                  {{.shape = F32(2), .devices = {0, 1}}}),
            "program step\n"
            "%0: f32[2] = argument @0,1\n"
            "%1: f32[2] = call f(%0) @0,1 from \"t.py:1\"\n"
            "%2: f32[2]{pinned_host} = transfer %1 @2,3 {pinned_host}\n"
            "%3: f32[2] = transfer %2 @4,5\n"
            "%4: f32[2], %5: f32[4] = call pair(%1, donate %0) @0,1\n"
            "call log(%5) @0,1\n"
            "result %3\n");
}

TEST(BindTest, FindsWhereViewsAre) {
  EXPECT_EQ(Bound("%0: f32[2] = argument @0,1\n"
                  "%1: f32[2] = argument @2,3\n"
                  "%2 = view %1[1], %0[0]\n"
                  "%3 = view %2[1]\n"
                  "%4 = replica of %2\n"
                  "%5 = replica of %3\n"),
            "%0: f32[2] = argument @0,1\n"
            "%1: f32[2] = argument @2,3\n"
            "%2: f32[2] = view %1[1], %0[0] @3,0\n"
            "%3: f32[2] = view %2[1] @0\n"
            "%4: f32[2] = replica of %2\n"
            "%5: f32[2] = replica of %3 @0\n");
}

TEST(BindTest, TakesWhatIsNotKnownToFit) {
  EXPECT_EQ(Bound("%0 = argument\n"
                  "%1: f32[4] = argument @7\n"
                  "%2 = call f(%0)\n"
                  "%3 = view %0[5], %2[1]\n"
                  "%4 = transfer %0 @1,2,3\n"
                  "%5: f32[9] = transfer %0 @1\n"
                  "%6 = call anywhere(%3)\n"
                  "%7 = view %0[0] @6\n",
                  {{}}),
            "%0 = argument\n"
            "%1: f32[4] = argument @7\n"
            "%2: f32[2] = call f(%0) @0,1\n"
            "%3: f32[2] = view %0[5], %2[1]\n"
            "%4 = transfer %0 @1,2,3\n"
            "%5: f32[9] = transfer %0 @1\n"
            "%6: f32[2] = call anywhere(%3)\n"
            "%7 = view %0[0] @6\n");
}

TEST(BindTest, DonatesWhatTheFunctionTakes) {
  EXPECT_EQ(Bound("%0 = argument\n%1 = argument\n"
                  "%2 = call take(%0)\n"
                  "%3 = call take(keep %2)\n"
                  "%4 = call add(donate %2, %3)\n"),
            "%0 = argument\n%1 = argument\n"
            "%2: f32[2] = call take(donate %0) @0,1\n"
            "%3: f32[2] = call take(%2) @0,1\n"
            "%4: f32[2] = call add(%2, %3) @0,1\n");
}

struct Refusal {
  std::string text, why;
};

TEST(BindTest, NamesTheNodeAndWhy) {
  for (const auto& [text, why] : std::vector<Refusal>{
           {"call missing() from \"t.py:1\"",
            "node 0 (call missing, t.py:1): 'missing' is not known"},
           {"%0 = argument\n%1 = call add(%0) from \"t.py:2\"",
            "node 1 (call my_add, t.py:2) has 1 inputs, its function takes 2"},
           {"%0 = argument\n%1, %2 = call f(%0)",
            "node 1 (call my_f) has 2 outputs, its function gives 1"},
           {"%0: f32[4] = argument @5\n%1 = call far(%0)",
            "node 1 (call my_far) takes f32[2] on devices 2,3 as input 0, and %0 is f32[4] on "
            "devices 5"},
           {"%0: s32[2] = argument\n%1 = call anywhere(%0)",
            "node 1 (call my_anywhere) takes f32[2] as input 0, and %0 is s32[2]"},
           {"%0 = argument\n%1 = call f(%0) @1,0",
            "node 1 (call my_f) is on devices 0,1, the program says 1,0"},
           {"%0 = argument @0,1\n%1 = view %0[2]",
            "node 1 (view) takes shard 2 of %0, which has 2 on devices 0,1"},
           {"%0: f32[2] = argument\n%1: f32[4] = argument\n%2 = view %0[0], %1[0]",
            "node 2 (view) is of shards of different shapes: %0 is f32[2], and %1 is f32[4]"},
           {"%0 = argument @0,1\n%1 = transfer %0 @2",
            "node 1 (transfer) moves %0, which is on devices 0,1, to 1 devices, 2"},
           {"%0 = argument @0,1\n%1 = view %0[1] @0",
            "node 1 (view) is on devices 1, the program says 0"}}) {
    EXPECT_EQ(Bound(text), why) << text;
  }
}

TEST(BindTest, ArgumentsAreWhatTheProgramSays) {
  EXPECT_EQ(Bound("%0 = argument @0,1", {{.devices = {0, 2}}}),
            "node 0 (argument) is on devices 0,2, the program says 0,1");
  EXPECT_EQ(Bound("%0: f32[2] = argument", {{.shape = F32(4)}}),
            "node 0 (argument) is f32[4], the program says f32[2]");
  EXPECT_EQ(Bound("%0: f32[2] = argument @0,1", {{.shape = F32(2), .devices = {0, 1}}}),
            "%0: f32[2] = argument @0,1\n");
}

TEST(BindTest, NamesTheFirstOfManyDevices) {
  const std::string first =
      "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31";
  EXPECT_EQ(Bound("%0 = argument @" + first + ",32\n%1 = transfer %0 @" + first),
            "node 1 (transfer) moves %0, which is on devices " + first +
                ",... (33), to 32 devices, " + first);
}

TEST(BindTest, AnErrorOfAFunctionKeepsItsCode) {
  const auto bound = Bind(Parsed("call f()"), {}, [](const std::string&) {
    return absl::StatusOr<const FunctionType*>(absl::DataLossError("its compile was lost"));
  });
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(bound.status().message(), "node 0 (call f): its compile was lost");
}

// JAX's tokens.
TEST(ArrayShapeTest, AnEmptyArrayOfBooleansIsAToken) {
  const ArrayShape token{.element_type = xla::TYPE_TOKEN};
  const ArrayShape empty{.element_type = xla::TYPE_PRED, .shard_dims = {0}};
  const ArrayShape one{.element_type = xla::TYPE_PRED, .shard_dims = {1}, .shard_bytes = 1};
  EXPECT_TRUE(Fits(empty, token));
  EXPECT_TRUE(Fits(token, token));
  EXPECT_FALSE(Fits(one, token));
  EXPECT_FALSE(Fits(empty, one));
}

TEST(ArrayShapeTest, FitsInWhateverMemory) {
  ArrayShape pinned = F32(2);
  pinned.memory_kind = "pinned_host";
  EXPECT_TRUE(Fits(pinned, F32(2)));
  EXPECT_FALSE(Fits(F32(4), F32(2)));
  EXPECT_EQ(ToText(pinned), "f32[2]{pinned_host}");
  EXPECT_EQ(ToText({.element_type = xla::TYPE_S32, .shard_dims = {2, 3}}), "s32[2,3]");
  EXPECT_EQ(ToText({.element_type = xla::TYPE_PRED}), "pred[]");
}

}  // namespace
}  // namespace gangway::program
