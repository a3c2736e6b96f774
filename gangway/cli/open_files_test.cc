// Tests of open_files.h.
#include "gangway/cli/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/base/lasting_error.h"

namespace gangway::cli {
namespace {

using ::testing::HasSubstr;

TEST(OpenFilesTest, TheLimitIsRaisedToWhatTheSystemAllows) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {std::min<rlim_t>(256, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const uint64_t raised = RaiseOpenFiles();
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(raised, std::min<rlim_t>(before.rlim_max, 1 << 20));
  EXPECT_EQ(after.rlim_cur, raised);
  EXPECT_EQ(after.rlim_max, before.rlim_max);
}

TEST(OpenFilesTest, TooFewAreAnErrorWithTheNumbers) {
  EXPECT_TRUE(CheckOpenFiles(512, OpenFilesFor(512)).ok());
  const absl::Status status = CheckOpenFiles(512, 1024);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsLasting(status)) << "another start meets it again";
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("may open 1024 files, and 512 workers need 1152"));
}

}  // namespace
}  // namespace gangway::cli
