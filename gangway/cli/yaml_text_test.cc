// JSON values as YAML. tests/test_kubernetes.py reads the manifests with a YAML parser.
#include "gangway/cli/yaml_text.h"

#include <gtest/gtest.h>

namespace gangway::cli {
namespace {

TEST(YamlTextTest, MapsAndListsAreIndented) {
  EXPECT_EQ(ToYaml({{"a", {{"b", 1}, {"c", Json::array({"x", {{"d", true}, {"e", nullptr}}})}}}}),
            "a:\n"
            "  b: 1\n"
            "  c:\n"
            "  - x\n"
            "  - d: true\n"
            "    e: null\n");
  EXPECT_EQ(ToYaml({{"none", Json::object()}, {"empty", Json::array()}}), "none: {}\nempty: []\n");
  EXPECT_EQ(ToYaml(Json::array({Json::array({1, 2}), "x"})), "- - 1\n  - 2\n- x\n");
}

TEST(YamlTextTest, TextStaysText) {
  for (const char* text : {"1",          "true", "No", "0x1f", "1e3", "~",  "",   "-",
                           "a b",        "a: b", "a:", "#",    "&a",  "*a", "!x", "$(HOST)",
                           "2026-11-29", "\t",   "\"", "null", "y",   "é"}) {
    EXPECT_EQ(ToYaml(text), Json(text).dump() + "\n");
  }
  for (const char* text : {"a", "gangway", "nvidia.com/gpu", "/etc/x_y", "a:b", "v1.2-3"})
    EXPECT_EQ(ToYaml(text), std::string(text) + "\n");
}

TEST(YamlTextTest, LinesAreABlock) {
  EXPECT_EQ(ToYaml({{"a", "x\n\n  y: 1\n"}}), "a: |\n  x\n\n    y: 1\n");
  EXPECT_EQ(ToYaml({{"a", {{"b", "x\ny"}}}}), "a:\n  b: |-\n    x\n    y\n");
  EXPECT_EQ(ToYaml(Json::array({"x\ny\n"})), "- |\n  x\n  y\n");
}

TEST(YamlTextTest, LinesThatABlockWouldChangeAreQuoted) {
  for (const char* text : {" x\ny\n", "\nx\n", "x\n\n", "x\r\ny\n", "x\x01\ny\n"})
    EXPECT_EQ(ToYaml({{"a", text}}), "a: " + Json(text).dump() + "\n");
}

TEST(YamlTextTest, BytesThatAreNotUtf8AreKnown) {
  EXPECT_TRUE(IsUtf8("é\n"));
  EXPECT_FALSE(IsUtf8("\xff\n"));
  EXPECT_EQ(ToYaml({{"a", "\xff\nb"}}), "a: \"\xEF\xBF\xBD\\nb\"\n");
}

}  // namespace
}  // namespace gangway::cli
