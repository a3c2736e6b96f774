// Unit test of fork.h.
#include "gangway/base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gangway {
namespace {

TEST(ForkTest, AChildKnowsThatItIsOne) {
  const uint64_t before = ForkGeneration();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ForkGeneration() == before + 1 ? 0 : 1);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ForkGeneration(), before);
}

}  // namespace
}  // namespace gangway
