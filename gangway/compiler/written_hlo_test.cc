// The folders into which XLA writes programs: what is read from them, and that they are gone afterwards.
#include "gangway/compiler/written_hlo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

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

}  // namespace
}  // namespace gangway::compiler
