// The folders into which XLA writes programs: what is read from them, and what a process that was killed leaves.
#include "gangway/compiler/written_hlo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WrittenHloTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "written-hlo-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    parent_ = name;
    setenv("TMPDIR", parent_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    fs::remove_all(parent_);
  }

  size_t CountFolders() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(parent_), fs::directory_iterator()));
  }
  // The only one, which a compile has made.
  fs::path Folder() const { return fs::directory_iterator(parent_)->path(); }
  static void MakeOld(const fs::path& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }

  fs::path parent_;
};

TEST_F(WrittenHloTest, ReadsWhatWasWrittenAlsoIfTheCompileFails) {
  for (const absl::Status& ended : {absl::OkStatus(), absl::InternalError("no code")}) {
    const auto read = WrittenHlo("", "pass", "before_pass", [&](const std::string& options) {
      EXPECT_THAT(options, HasSubstr(Folder().native()));
      std::ofstream(Folder() / "module.before_pass.hlo.pb") << "program";
      return ended;
    });
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, "program");
    EXPECT_EQ(CountFolders(), 0u);
  }
}

TEST_F(WrittenHloTest, NothingWrittenIsTheCompilesErrorOrUnavailable) {
  const auto after = [](absl::Status ended) {
    return WrittenHlo("", "", "end", [&](const std::string&) { return ended; }).status().code();
  };
  EXPECT_EQ(after(absl::InvalidArgumentError("bad")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(after(absl::OkStatus()), absl::StatusCode::kUnavailable);
}

TEST_F(WrittenHloTest, WhatAKilledProcessLeavesIsRemovedButNothingElse) {
  const fs::path left = parent_ / "gangway-partition-left",
                 young = parent_ / "gangway-partition-new", other = parent_ / "mine";
  for (const fs::path& folder : {left, young, other}) {
    fs::create_directory(folder);
    std::ofstream(folder / "program.hlo.pb") << "program";
  }
  MakeOld(left);
  MakeOld(other);
  fs::path used;
  (void)WrittenHlo("", "", "end", [&](const std::string&) {
    for (const fs::directory_entry& entry : fs::directory_iterator(parent_))
      if (entry.path() != left && entry.path() != young && entry.path() != other)
        used = entry.path();
    MakeOld(used);
    RemoveLeftHlo();  // as another compiler that starts meanwhile
    EXPECT_TRUE(fs::exists(used));
    return absl::OkStatus();
  });
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(other));
}

}  // namespace
}  // namespace gangway::compiler
