// Tests of thread_room.h, with a folder of files like the kernel's.
#include "gangway/compiler/thread_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ThreadRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "gangway-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directory(folder_ / "pids");
  }
  void TearDown() override { fs::remove_all(folder_); }
  // In the root of either version.
  void Write(const std::string& limit, const std::string& current) {
    for (const fs::path& root : {folder_, folder_ / "pids"}) {
      std::ofstream(root / "pids.max") << limit << "\n";
      std::ofstream(root / "pids.current") << current << "\n";
    }
  }
  fs::path folder_;
};

TEST_F(ThreadRoomTest, AsManyAsTheLimitLeaves) {
  Write("1000", "400");
  EXPECT_TRUE(CheckThreadRoom(600, folder_).ok());
  const absl::Status status = CheckThreadRoom(601, folder_);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("601 more threads, and of the 1000"));
}

TEST_F(ThreadRoomTest, NoLimitIsNone) {
  EXPECT_TRUE(CheckThreadRoom(1u << 20, folder_).ok());
  Write("max", "400");
  EXPECT_TRUE(CheckThreadRoom(1u << 20, folder_).ok());
  EXPECT_TRUE(CheckThreadRoom(1).ok()) << "the real one";
}

}  // namespace
}  // namespace gangway::compiler
