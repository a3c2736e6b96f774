// CoresOfQuota: what a control group's line says.
#include "gangway/base/cores.h"

#include <gtest/gtest.h>

#include <optional>

namespace gangway {
namespace {

TEST(CoresTest, AQuotaCountsWholeCores) {
  EXPECT_EQ(CoresOfQuota("200000 100000"), 2u);
  EXPECT_EQ(CoresOfQuota("150000 100000"), 1u);
  EXPECT_EQ(CoresOfQuota("50000 100000"), 0u);
}

TEST(CoresTest, OtherLinesAreNoQuota) {
  for (const char* line : {"max 100000", "", "200000", "200000 0", "-1 100000", "2 1 1"})
    EXPECT_EQ(CoresOfQuota(line), std::nullopt) << line;
}

}  // namespace
}  // namespace gangway
