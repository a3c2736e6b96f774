// Tests of host_memory.h: limits of control groups in a file system of the test.
#include "gangway/base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gangway {
namespace {

class CgroupTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text << "\n";
  }
  const std::string root_ = testing::TempDir() + "/cgroups-" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(CgroupTest, TheLowestLimitOnTheWayUpCounts) {
  Write("/memory.max", "max");
  Write("/pod/memory.max", "3000");
  Write("/pod/box/memory.max", "5000");
  EXPECT_EQ(CgroupMemoryLimit("0::/pod/box\n", root_), 3000u);
  EXPECT_EQ(CgroupMemoryLimit("0::/\n", root_), UINT64_MAX);
}

// A container sees its own group as the root.
TEST_F(CgroupTest, TheRootOfANamespaceHasALimit) {
  Write("/memory.max", "7000");
  EXPECT_EQ(CgroupMemoryLimit("0::/\n", root_), 7000u);
}

TEST_F(CgroupTest, TheFirstVersionIsReadToo) {
  Write("/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("/memory/box/memory.limit_in_bytes", "4096");
  EXPECT_EQ(CgroupMemoryLimit("12:cpu,cpuacct:/box\n4:memory:/box\n", root_), 4096u);
}

TEST_F(CgroupTest, TextThatIsNoGroupGivesNoLimit) {
  EXPECT_EQ(CgroupMemoryLimit("", root_), UINT64_MAX);
  EXPECT_EQ(CgroupMemoryLimit("no colon\n0:one\n0::relative", root_), UINT64_MAX);
}

TEST(HostMemory, IsKnown) { EXPECT_GT(HostMemoryBytes(), uint64_t{1} << 20); }

}  // namespace
}  // namespace gangway
