// What is escaped in names, what is kept, and where long names are cut.
#include "gangway/base/shown_name.h"

#include <gtest/gtest.h>

#include "gangway/base/utf8.h"

namespace gangway {
namespace {

TEST(ShownName, KeepsWhatPeopleWriteInNames) {
  for (const char* name :
       {"train.py (pid 4711)", "jit(f) <locals>", "C:\\new", "", "gr\u00fc\u00df \u20ac \U0001f600",
        "\u0646\u0627\u0645\u200c\u0647\u0627"})
    EXPECT_EQ(ShownName(name), name);
}

TEST(ShownName, EscapesWhatSteersTerminalsAndForgesRows) {
  EXPECT_EQ(ShownName("a\x1b[2J\nb\r\tc\x7f"), "a\\x1b[2J\\nb\\r\\tc\\x7f");
  EXPECT_EQ(ShownName(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(ShownName("\u009b31m \u0085"), "\\u009b31m \\u0085") << "C1: another CSI and newline";
  EXPECT_EQ(ShownName("\u202etxt.exe\u2066 \u2028"), "\\u202etxt.exe\\u2066 \\u2028");
  EXPECT_EQ(ShownName("\u200b\ufeff\U000e0041"), "\\u200b\\ufeff\\U000e0041");
}

TEST(ShownName, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(ShownName("a\x9b\xff z"), "a\\x9b\\xff z");
  EXPECT_EQ(ShownName("\xe2\x82"), "\\xe2\\x82") << "cut off";
  EXPECT_EQ(ShownName("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
}

TEST(ShownName, IsUnchangedByASecondPass) {
  const std::string once = ShownName("a\x1b\n\u202e\xff\\n");
  EXPECT_EQ(ShownName(once), once);
  EXPECT_EQ(ShownLines(once), once);
}

TEST(ShownName, IsBoundedAndCutBetweenCharacters) {
  const std::string longest(kShownNameBytesMax, 'x');
  EXPECT_EQ(ShownName(longest), longest);
  std::string longer;
  while (longer.size() < 10000) longer += longest;
  EXPECT_EQ(ShownName(longer), longest.substr(3) += "...");
  for (size_t limit = 8; limit < 24; ++limit) {
    std::string name;
    for (int i = 0; i < 100; ++i) name += "\u20ac\x1b";
    const std::string shown = ShownName(name, limit);
    EXPECT_LE(shown.size(), limit);
    EXPECT_TRUE(shown.ends_with("...")) << shown;
    EXPECT_EQ(ValidUtf8(shown), shown);
    const std::string kept = shown.substr(0, shown.size() - 3);
    EXPECT_TRUE(kept.ends_with("\u20ac") || kept.ends_with("\\x1b"))
        << "an escape is not cut: " << kept;
  }
}

TEST(ShownLines, IndentsFurtherLinesAndKeepsTabs) {
  EXPECT_EQ(ShownLines("failed:\n2026-01-01 head I\tforged\x1b[0m\r\n"),
            "failed:\n    2026-01-01 head I\tforged\\x1b[0m\\r\n    ");
}

}  // namespace
}  // namespace gangway
