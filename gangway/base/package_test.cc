// Tests of package.h.
#include "gangway/base/package.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace gangway {
namespace {

TEST(Package, ABinaryOfABuildFindsItsRepositoryWhereverThatIs) {
  EXPECT_EQ(PackageFolder(), "");
  EXPECT_TRUE(std::filesystem::exists(SourcePath("gangway/base/package_test.cc")));
  EXPECT_EQ(SourcePath("tools"), SourceFolder() + "/tools");
  EXPECT_EQ(SourcePath("/somewhere/else.so"), "/somewhere/else.so");
}

}  // namespace
}  // namespace gangway
