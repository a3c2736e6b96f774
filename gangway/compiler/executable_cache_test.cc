// Tests of executable_cache.h: damage, a full disk and unusable folders are misses, never errors.
#include "gangway/compiler/executable_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLarge = 1 << 30;

wire::CompileResult Result(const std::string& serialized) {
  wire::CompileResult result;
  result.set_request(5);
  result.set_serialized(serialized);
  result.mutable_info()->set_name("f");
  return result;
}

class ExecutableCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "gangway-cache-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    folder_ = root_ / "deep" / "executables";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::vector<fs::path> Files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path());
    return files;
  }
  std::string ReadOnlyFile() {
    auto files = Files();
    EXPECT_EQ(files.size(), 1u);
    std::ifstream file(files[0], std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void Overwrite(const std::string& content) {
    std::ofstream file(Files().at(0), std::ios::binary | std::ios::trunc);
    file << content;
  }

  fs::path root_;
  fs::path folder_;
};

TEST_F(ExecutableCacheTest, KeepsAcrossProcesses) {
  ExecutableCache cache(folder_, kLarge);
  EXPECT_FALSE(cache.Lookup("k").has_value());
  cache.Store("k", Result("bytes"));
  ExecutableCache another(folder_, kLarge);
  auto found = another.Lookup("k");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->serialized(), "bytes");
  EXPECT_EQ(found->info().name(), "f");
  EXPECT_TRUE(found->from_cache());
  EXPECT_EQ(found->request(), 0u);
  EXPECT_FALSE(another.Lookup("other").has_value());
  EXPECT_EQ(another.counters().hits, 1u);
  EXPECT_EQ(another.counters().misses, 1u);
  EXPECT_EQ(another.counters().corrupt, 0u);
}

TEST_F(ExecutableCacheTest, EveryFlippedByteAndEveryTruncationIsAMiss) {
  ExecutableCache cache(folder_, kLarge);
  cache.Store("k", Result("some bytes of an executable"));
  const std::string good = ReadOnlyFile();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x40;
    cache.Store("k", Result("x"));
    Overwrite(bad);
    EXPECT_FALSE(cache.Lookup("k").has_value()) << "byte " << i;
    cache.Store("k", Result("x"));
    Overwrite(good.substr(0, i));
    EXPECT_FALSE(cache.Lookup("k").has_value()) << "cut at " << i;
  }
  EXPECT_EQ(cache.counters().corrupt, 2 * good.size());
  cache.Store("k", Result("x"));
  Overwrite(good);
  EXPECT_TRUE(cache.Lookup("k").has_value());
}

TEST_F(ExecutableCacheTest, AnEntryUnderAnotherNameIsAMiss) {
  ExecutableCache cache(folder_, kLarge);
  cache.Store("k", Result("x"));
  fs::rename(folder_ / "k.executable", folder_ / "l.executable");
  EXPECT_FALSE(cache.Lookup("l").has_value());
  EXPECT_EQ(cache.counters().corrupt, 1u);
}

TEST_F(ExecutableCacheTest, AFullDiskOnlyEndsTheWriting) {
  ExecutableCache cache(folder_, kLarge);
  cache.Store("before", Result("x"));
  struct rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = {4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  cache.Store("k", Result(std::string(100000, 'x')));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(cache.counters().store_failures, 1u);
  EXPECT_FALSE(cache.writable());
  EXPECT_FALSE(cache.Lookup("k").has_value());
  EXPECT_TRUE(cache.Lookup("before").has_value());
  EXPECT_EQ(Files().size(), 1u) << "the temporary file is gone";
  cache.Store("after", Result("x"));
  EXPECT_FALSE(cache.Lookup("after").has_value());
  EXPECT_EQ(cache.counters().store_failures, 1u);
}

TEST_F(ExecutableCacheTest, AFolderThatCannotBeIsNoCache) {
  std::ofstream(root_ / "file") << "x";
  for (fs::path folder : {root_ / "file", root_ / "file" / "below"}) {
    ExecutableCache cache(folder, kLarge);
    EXPECT_FALSE(cache.readable());
    EXPECT_EQ(cache.counters().store_failures, 1u);
    cache.Store("k", Result("x"));
    EXPECT_FALSE(cache.Lookup("k").has_value());
  }
  ExecutableCache off("", kLarge);
  off.Store("k", Result("x"));
  EXPECT_FALSE(off.Lookup("k").has_value());
  EXPECT_EQ(off.counters().store_failures, 0u);
}

TEST_F(ExecutableCacheTest, AFolderThatOthersCanWriteIsNotTrusted) {
  {
    ExecutableCache(folder_, kLarge).Store("k", Result("x"));
  }
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
  ExecutableCache cache(folder_, kLarge);
  EXPECT_FALSE(cache.Lookup("k").has_value());
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::remove);
  EXPECT_TRUE(ExecutableCache(folder_, kLarge).Lookup("k").has_value());
}

TEST_F(ExecutableCacheTest, TheLeastRecentlyUsedGoFirst) {
  ExecutableCache cache(folder_, 10000);
  for (int i = 0; i < 8; ++i) {
    std::string key = std::to_string(i);
    cache.Store(key, Result(std::string(1000, 'x')));
    auto past = fs::file_time_type::clock::now() - std::chrono::hours(100 - i);
    fs::last_write_time(folder_ / (key + ".executable"), past);
  }
  EXPECT_EQ(cache.counters().evictions, 0u);
  ASSERT_TRUE(cache.Lookup("0").has_value());  // in use again
  cache.Store("8", Result(std::string(1000, 'x')));
  cache.Store("9", Result(std::string(1000, 'x')));
  EXPECT_GT(cache.counters().evictions, 0u);
  EXPECT_TRUE(cache.Lookup("0").has_value());
  EXPECT_FALSE(cache.Lookup("1").has_value());
  EXPECT_TRUE(cache.Lookup("9").has_value());
  uint64_t bytes = 0;
  for (const auto& path : Files()) bytes += fs::file_size(path);
  EXPECT_LE(bytes, 10000u);
  cache.Store("huge", Result(std::string(20000, 'x')));
  EXPECT_FALSE(cache.Lookup("huge").has_value());
  EXPECT_TRUE(cache.Lookup("9").has_value());
}

TEST_F(ExecutableCacheTest, WhatADeadProcessLeftIsSwept) {
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::owner_all);
  std::ofstream(folder_ / "temporary-1-0") << "x";
  std::ofstream(folder_ / "temporary-2-0") << "x";
  fs::last_write_time(folder_ / "temporary-1-0",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  ExecutableCache cache(folder_, kLarge);
  EXPECT_FALSE(fs::exists(folder_ / "temporary-1-0"));
  EXPECT_TRUE(fs::exists(folder_ / "temporary-2-0"));
}

}  // namespace
}  // namespace gangway::compiler
