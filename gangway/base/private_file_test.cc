// Private folders follow no link and take nothing of another user. Some cases need root, which can give files away.
#include "gangway/base/private_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gangway {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kAnother = 54321;

class PrivateFolderTest : public ::testing::Test {
 protected:
  PrivateFolderTest() {
    std::string pattern = ::testing::TempDir() + "gangway-private-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~PrivateFolderTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) { return root_ + "/" + name; }
  void Put(const std::string& name, const std::string& text) { std::ofstream(Path(name)) << text; }
  std::string Get(const std::string& name) {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  mode_t Mode(const std::string& name) {
    struct stat about;
    return lstat(Path(name).c_str(), &about) == 0 ? about.st_mode & 07777 : 0;
  }
  static bool IsRoot() { return geteuid() == 0; }

  std::string root_;
};

TEST_F(PrivateFolderTest, IsMadeForItsOwnerOnlyAndHoldsFiles) {
  auto folder = PrivateFolder::Make(Path("a/b"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(Mode("a/b"), 0700u);
  ASSERT_TRUE(folder->Write("file", "text").ok());
  ASSERT_TRUE(folder->Write("file", "other").ok());
  EXPECT_EQ(*folder->Read("file"), "other");
  EXPECT_EQ(Mode("a/b/file"), 0600u);
  ASSERT_TRUE(folder->MakeFolder("logs")->Write("file", "deep").ok());
  EXPECT_EQ(Mode("a/b/logs"), 0700u);
  ASSERT_TRUE(folder->Rename("file", "file.1").ok());
  folder->Remove("file.1");
  EXPECT_EQ(folder->Read("file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(PrivateFolder::Open(Path("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PrivateFolderTest, TakesTheRightsOfOthersAway) {
  ASSERT_EQ(mkdir(Path("open").c_str(), 0755), 0);
  ASSERT_EQ(chmod(Path("open").c_str(), 0777), 0);
  ASSERT_TRUE(PrivateFolder::Open(Path("open")).ok());
  EXPECT_EQ(Mode("open"), 0700u);
}

TEST_F(PrivateFolderTest, FollowsNoLink) {
  auto folder = PrivateFolder::Make(Path("own"));
  ASSERT_TRUE(folder.ok());
  Put("victim", "precious");
  ASSERT_EQ(symlink(Path("victim").c_str(), Path("own/log").c_str()), 0);
  ASSERT_EQ(symlink(root_.c_str(), Path("own/logs").c_str()), 0);
  ASSERT_EQ(symlink(Path("own").c_str(), Path("link").c_str()), 0);
  for (const int flags : {O_RDONLY, O_WRONLY | O_APPEND, O_WRONLY | O_CREAT | O_TRUNC}) {
    const absl::Status refused = folder->OpenFile("log", flags).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("own/log is a link"));
  }
  EXPECT_EQ(folder->MakeFolder("logs").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(PrivateFolder::Make(Path("link")).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(folder->Write("log", "mine").ok()) << "it replaces the link";
  EXPECT_EQ(Get("victim"), "precious");
  EXPECT_EQ(Get("own/log"), "mine");
}

TEST_F(PrivateFolderTest, OpensNeitherFoldersNorFifos) {
  auto folder = PrivateFolder::Make(Path("own"));
  ASSERT_TRUE(folder.ok() && folder->MakeFolder("folder").ok());
  ASSERT_EQ(mkfifo(Path("own/fifo").c_str(), 0600), 0);
  for (const char* name : {"folder", "fifo"}) {
    EXPECT_EQ(folder->OpenFile(name, O_RDONLY).status().code(),
              absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(folder->OpenFile(name, O_WRONLY).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(PrivateFolderTest, RefusesWhatBelongsToAnotherUser) {
  if (!IsRoot()) GTEST_SKIP() << "only root can give files away";
  auto folder = PrivateFolder::Make(Path("own"));
  ASSERT_TRUE(folder.ok() && folder->Write("file", "planted").ok());
  ASSERT_EQ(chown(Path("own/file").c_str(), kAnother, kAnother), 0);
  EXPECT_EQ(folder->Read("file").status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(mkdir(Path("theirs").c_str(), 0700), 0);
  ASSERT_EQ(chown(Path("theirs").c_str(), kAnother, kAnother), 0);
  for (const absl::Status& refused :
       {PrivateFolder::Make(Path("theirs")).status(), CheckHolder(Path("theirs"))}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to user 54321"));
  }
}

TEST_F(PrivateFolderTest, AHolderIsNotForAllToWriteUnlessItIsSticky) {
  EXPECT_TRUE(CheckHolder(root_).ok());
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  EXPECT_EQ(CheckHolder(root_).code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(root_.c_str(), 01777), 0);
  EXPECT_TRUE(CheckHolder(root_).ok()) << "as /tmp";
  EXPECT_EQ(CheckHolder(Path("none")).code(), absl::StatusCode::kNotFound);
}

TEST_F(PrivateFolderTest, AnOutputFollowsOwnLinksOnly) {
  Put("victim", "precious");
  ASSERT_EQ(symlink(Path("victim").c_str(), Path("link").c_str()), 0);
  auto file = OpenOutput(Path("link"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(WriteAll(file->get(), "mine"));
  EXPECT_EQ(Get("victim"), "mine");
  EXPECT_EQ(OpenOutput(Path("none/x")).status().code(), absl::StatusCode::kUnavailable);
  if (!IsRoot()) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(lchown(Path("link").c_str(), kAnother, kAnother), 0);
  EXPECT_EQ(OpenOutput(Path("link")).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Get("victim"), "mine");
}

// As a container that does not run as root has it (a mounted secret of Kubernetes).
TEST_F(PrivateFolderTest, AGroupMayReadASecretOfRootsInAProcessOfAnother) {
  if (!IsRoot()) GTEST_SKIP() << "only root can become another user";
  Put("secret", "token");
  const std::string path = Path("secret");
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  ASSERT_EQ(chown(path.c_str(), 0, kAnother), 0);
  ASSERT_EQ(chmod(path.c_str(), 0440), 0);
  EXPECT_EQ(ReadPrivateFile(path).status().code(), absl::StatusCode::kPermissionDenied)
      << "root itself needs no group";
  ASSERT_EQ(setegid(kAnother), 0);
  ASSERT_EQ(seteuid(kAnother), 0);
  const auto read = ReadPrivateFile(path);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(read.value_or(""), "token") << read.status();
  for (const mode_t open : {0444, 0460}) {
    ASSERT_EQ(chmod(path.c_str(), open), 0);
    ASSERT_EQ(seteuid(kAnother), 0);
    const auto refused = ReadPrivateFile(path);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied) << open;
  }
  ASSERT_EQ(setegid(0), 0);
}

}  // namespace
}  // namespace gangway
