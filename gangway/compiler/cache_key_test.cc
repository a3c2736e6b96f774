// Tests of cache_key.h: which inputs change the key of a compiled program, and which do not.
#include "gangway/compiler/cache_key.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "gangway/xla/compile_options.h"

namespace gangway::compiler {
namespace {

wire::CompileRequest Request() {
  wire::CompileRequest request;
  request.set_request(1);
  request.set_program("module {}");
  request.set_format("mlir");
  request.set_device_count(2);
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_partitions(2);
  request.set_options(options.SerializeAsString());
  return request;
}

std::string Key(const std::string& identity, const wire::CompileRequest& request) {
  auto key = CacheKey(identity, request);
  EXPECT_TRUE(key.ok()) << key.status();
  return key.ok() ? *key : "";
}

TEST(CacheKey, DependsOnWhatTheCodeDependsOn) {
  std::set<std::string> keys;
  wire::CompileRequest request = Request();
  keys.insert(Key("a", request));
  keys.insert(Key("b", request));
  request.set_program("module { }");
  keys.insert(Key("a", request));
  request = Request();
  request.set_format("hlo");
  keys.insert(Key("a", request));
  request = Request();
  request.set_device_count(4);
  keys.insert(Key("a", request));
  request = Request();
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(2);
  request.set_options(options.SerializeAsString());
  keys.insert(Key("a", request));
  EXPECT_EQ(keys.size(), 6u);
}

TEST(CacheKey, DoesNotDependOnPlaceOrRequestNumber) {
  for (const bool spans : {false, true}) {
    wire::CompileRequest request = Request();
    request.set_spans_workers(spans);
    std::string key = Key("a", request);
    request.set_request(77);
    request.set_options(*xla::WithDevices(request.options(), std::vector<uint32_t>{5, 4}));
    EXPECT_EQ(Key("a", request), key);
  }
}

TEST(CacheKey, DependsOnWhoseCollectivesItUses) {
  wire::CompileRequest request = Request();
  std::set<std::string> keys = {Key("a", request)};
  EXPECT_EQ(*CacheKey("a", request, collective::kLoweringVersion + 1), *keys.begin())
      << "a program that is not lowered";
  for (auto set :
       {&wire::CompileRequest::set_spans_workers, &wire::CompileRequest::set_own_collectives}) {
    request = Request();
    (request.*set)(true);
    keys.insert(Key("a", request));
    keys.insert(*CacheKey("a", request, collective::kLoweringVersion + 1));
  }
  EXPECT_EQ(keys.size(), 5u);
}

TEST(CacheKey, RefusesWhatAreNoOptions) {
  wire::CompileRequest request = Request();
  request.set_options("\xff\xff");
  EXPECT_EQ(CacheKey("a", request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CompilerIdentity, DependsOnPluginAndSettings) {
  device::Capabilities capabilities;
  capabilities.platform_version = "1";
  std::set<std::string> identities;
  unsetenv("XLA_FLAGS");
  identities.insert(*CompilerIdentity(capabilities, ""));
  identities.insert(*CompilerIdentity(capabilities, "/proc/self/exe"));
  setenv("XLA_FLAGS", "--xla_something", 1);
  identities.insert(*CompilerIdentity(capabilities, ""));
  unsetenv("XLA_FLAGS");
  setenv("NPROC", "77", 1);
  identities.insert(*CompilerIdentity(capabilities, ""));
  unsetenv("NPROC");
  capabilities.platform_version = "2";
  identities.insert(*CompilerIdentity(capabilities, ""));
  EXPECT_EQ(identities.size(), 5u);
  capabilities.platform_version = "1";
  EXPECT_EQ(identities.count(*CompilerIdentity(capabilities, "")), 1u);
  EXPECT_EQ(CompilerIdentity(capabilities, "/nowhere/plugin.so").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gangway::compiler
