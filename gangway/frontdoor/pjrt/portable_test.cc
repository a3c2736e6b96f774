// Which compile options may ask for a portable executable. How one runs: examples/go_client, tests/test_go_client.py.
#include "gangway/frontdoor/pjrt/portable.h"

#include <gtest/gtest.h>

namespace gangway::pjrt {
namespace {

TEST(PortableTest, APortableExecutableNamesNoDevices) {
  xla::CompileOptionsProto options;
  auto& build = *options.mutable_executable_build_options();
  build.mutable_device_assignment()->set_replica_count(1);
  EXPECT_TRUE(CheckPortable(options).ok()) << "it is not portable";
  options.set_compile_portable_executable(true);
  EXPECT_EQ(CheckPortable(options).code(), absl::StatusCode::kInvalidArgument);
  build.clear_device_assignment();
  EXPECT_TRUE(CheckPortable(options).ok());
}

TEST(PortableTest, APortableExecutableRunsOnOneDevice) {
  xla::CompileOptionsProto options;
  options.set_compile_portable_executable(true);
  auto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(1);
  build.set_num_partitions(1);
  EXPECT_TRUE(CheckPortable(options).ok());
  build.set_num_replicas(2);
  EXPECT_EQ(CheckPortable(options).code(), absl::StatusCode::kInvalidArgument);
  build.set_num_replicas(1);
  build.set_num_partitions(2);
  EXPECT_EQ(CheckPortable(options).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gangway::pjrt
