// The texts that calls carry: attributes, and the shardings of Shardy.
#include "gangway/compiler/check_calls/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/compiler/check_calls/sharding_text.h"

namespace gangway::compiler::calls {
namespace {

using ::testing::HasSubstr;

TEST(Attributes, OfJaxsLoweringsAreRead) {
  const auto read = ParseAttributes(
      "{left = true, low = 1 : i32, magma = \"auto\", uplo = 76 : ui8, wide = -7, "
      "recall = 9.49999988e-01 : f32, list = array<i64: 1, 2>, deep = {a = [1, 2 : i8]}}");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 8u);
  EXPECT_EQ(read->at("left").kind, Attribute::Kind::kBool);
  EXPECT_EQ(read->at("left").integer, 1);
  EXPECT_EQ(read->at("low").integer, 1);
  EXPECT_EQ(read->at("low").type, "i32");
  EXPECT_EQ(read->at("magma").text, "auto");
  EXPECT_EQ(read->at("uplo").integer, 'L');
  EXPECT_EQ(read->at("wide").integer, -7);
  EXPECT_EQ(read->at("wide").type, "i64");
  EXPECT_EQ(read->at("recall").kind, Attribute::Kind::kFloat);
  EXPECT_EQ(read->at("list").kind, Attribute::Kind::kOther);
}

TEST(Attributes, OfNothingAreNone) {
  for (const char* text : {"", "{}", " { } "}) {
    const auto read = ParseAttributes(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_TRUE(read->empty());
  }
}

TEST(Attributes, StringsHaveEscapes) {
  const auto read = ParseAttributes(R"({"a b" = "\22\\\n\"x"})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("a b").text, "\"\\\n\"x");
}

TEST(Attributes, OthersAreRefused) {
  for (const char* text : {
           "uplo = 76 : ui8",
           "{uplo = 76 : ui8",
           "{uplo = 76 : ui8} x",
           "{uplo}",
           "{uplo = }",
           "{= 1}",
           "{a = 1, a = 2}",
           "{a = 1,}",
           "{a = 256 : ui8}",
           "{a = -1 : ui8}",
           "{a = 128 : i8}",
           "{a = 1 : i7}",
           "{a = 1 : index}",
           "{a = 99999999999999999999}",
           "{a = 1.5 : i32}",
           "{a = 1 : f32}",
           "{a = dense<1> : tensor<i32>}",
           "{a = @symbol}",
           "{a = #sdy.mesh<[]>}",
           "{a = \"x}",
           "{a = \"\\q\"}",
           "{a = 1 // comment\n}",
           "{a = [[[[[1]]]]]}",
           "{a = {b = {c = {d = {e = 1}}}}}",
           "{a = array<f16: 1>}",
           "{a = array<i64: 1}",
           "{a = 0x10}",
       }) {
    EXPECT_FALSE(ParseAttributes(text).ok()) << text;
  }
}

TEST(Attributes, HaveLimits) {
  std::string many = "{";
  for (size_t i = 0; i <= kAttributesMax; ++i) many += "a" + std::to_string(i) + " = 1, ";
  EXPECT_THAT(ParseAttributes(many + "z = 1}").status().ToString(), HasSubstr("too many"));
  EXPECT_THAT(ParseAttributes("{a = \"" + std::string(kAttributesBytesMax, 'x') + "\"}")
                  .status()
                  .ToString(),
              HasSubstr("over the limit"));
}

TEST(ShardingText, OfJaxsLoweringsIsRead) {
  const auto meshes = ParseMeshes(
      R"({empty = #sdy.mesh<[]>, maximal_mesh_0 = #sdy.mesh<[], device_ids=[0]>, mesh = #sdy.mesh<["a"=2, "b"=4]>})");
  ASSERT_TRUE(meshes.ok()) << meshes.status();
  EXPECT_EQ(meshes->at("mesh").positions, 8);
  const auto read = ParseShardings(
      R"(#sdy.sharding_per_value<[<@mesh, [{}, {"a", "b"}, {?}]>, <@mesh, [{"b":(1)2, ?}p1], replicated={"a"}>, <mesh<["c"=3]>, [{"c"}]>]>)",
      *meshes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].dims.size(), 3u);
  EXPECT_EQ((*read)[0].dims[1].size(), 2u);
  EXPECT_EQ((*read)[1].dims[0][0].size, 2);
  EXPECT_EQ((*read)[2].mesh.positions, 3);
  const auto axes = ParseManualAxes(R"(#sdy<manual_axes{"a", "b"}>)");
  ASSERT_TRUE(axes.ok()) << axes.status();
  EXPECT_EQ(axes->size(), 2u);
}

TEST(ShardingText, OthersAreRefused) {
  TextMeshes meshes = *ParseMeshes(R"({mesh = #sdy.mesh<["a"=2, "b"=4]>})");
  for (const char* text : {
           "",
           "#sdy.sharding_per_value<[<@none, [{}]>]>",
           R"(#sdy.sharding_per_value<[<@mesh, [{"c"}]>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"a"}, {"a"}]>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"b":(1)3}]>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"b", "b":(1)2}]>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"a"}]>)",
           R"(#sdy.sharding_per_value<[<@mesh>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"a"}], x={}>]>)",
           R"(#sdy.sharding_per_value<[<@mesh, [{"a"}]>]> more)",
       }) {
    EXPECT_FALSE(ParseShardings(text, meshes).ok()) << text;
  }
  for (const char* text :
       {"", "{mesh = #sdy.mesh<[\"a\"=0]>}", "{mesh = #sdy.mesh<[\"a\"=2, \"a\"=2]>}",
        "{mesh = #sdy.mesh<[\"a\"=9223372036854775807, \"b\"=4]>}",
        "{m = #sdy.mesh<[]>, m = #sdy.mesh<[]>}", "{mesh = 1}", "{mesh = #sdy.mesh<[\"a\"=2]>"})
    EXPECT_FALSE(ParseMeshes(text).ok()) << text;
  for (const char* text : {"", "#sdy<manual_axes{\"a\", \"a\"}>", "#sdy<manual_axes{a}>"})
    EXPECT_FALSE(ParseManualAxes(text).ok()) << text;
}

}  // namespace
}  // namespace gangway::compiler::calls
