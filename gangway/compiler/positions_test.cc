// Programs of many positions on the real XLA plugin: what partitioning them costs the compiler's process, in memory and
// threads, while it also has other work (partition.h states the limits), and the collectives that the plugin
// partitions without having code for them. A process of its own, since others' memory and threads would be measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gangway/collective/lowering/lowering.h"
#include "gangway/compiler/compiler_test_util.h"
#include "gangway/compiler/partition.h"
#include "gangway/xla/collectives.pb.h"

namespace gangway::compiler {
namespace {

using ::testing::HasSubstr;

// Under AddressSanitizer, whose allocator keeps what is freed, memory is not measured.
#if defined(GANGWAY_IS_SANITIZED)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// A product over a mesh of rows x 4 whose sums are over groups of four. `name` makes programs that differ.
std::string ProductOver(int rows, const std::string& name) {
  return absl::StrReplaceAll(
      R"(
module @NAME attributes {mhlo.num_partitions = COUNT : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<2048x64xf32> {mhlo.sharding = "{devices=[ROWS,4]<=[COUNT]}"},
      %w: tensor<64x32xf32> {mhlo.sharding =
          "{devices=[4,1,ROWS]<=[ROWS,4]T(1,0) last_tile_dim_replicate}"})
      -> (tensor<2048x32xf32> {mhlo.sharding =
          "{devices=[ROWS,1,4]<=[COUNT] last_tile_dim_replicate}"}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<2048x64xf32>, tensor<64x32xf32>) -> tensor<2048x32xf32>
    return %y : tensor<2048x32xf32>
  }
})",
      {{"NAME", name}, {"ROWS", std::to_string(rows)}, {"COUNT", std::to_string(4 * rows)}});
}

std::string SumOf(int count) {
  std::string text =
      "module @small {\n  func.func public @main(%x0: tensor<8xf32>) -> tensor<8xf32> {\n";
  for (int i = 0; i < count; ++i)
    absl::StrAppend(&text, "    %x", i + 1, " = stablehlo.add %x", i, ", %x", i,
                    " : tensor<8xf32>\n");
  return absl::StrCat(text, "    return %x", count, " : tensor<8xf32>\n  }\n}");
}

// What this process has.
struct Usage {
  uint64_t threads = 0;
  uint64_t resident_bytes = 0;
};

Usage UsageNow() {
  Usage usage;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Threads:")) usage.threads = std::stoull(line.substr(8));
    if (line.starts_with("VmRSS:")) usage.resident_bytes = std::stoull(line.substr(6)) << 10;
  }
  return usage;
}

// The most that this process has while the object lives.
class Peak {
 public:
  Peak() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const Usage now = UsageNow();
        threads_ = std::max(threads_.load(), now.threads);
        resident_bytes_ = std::max(resident_bytes_.load(), now.resident_bytes);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  Usage Read() const { return {threads_, resident_bytes_}; }

 private:
  std::atomic<uint64_t> threads_ = 0, resident_bytes_ = 0;
  std::jthread thread_;  // last: it ends before what it writes
};

bool IsBack(const Usage& before, const Usage& now) {
  constexpr uint64_t kKept = uint64_t{48} << 20;  // by the allocator, and by the plugin for good
  return now.threads <= before.threads && now.resident_bytes <= before.resident_bytes + kKept;
}

class PositionsTest : public CompilerTest {
 protected:
  void SetUp() override {
    CompilerTest::SetUp();
    options_.open = OpenPartitioner;
    Listen();
    Start();
    ASSERT_TRUE(WaitHello());
  }
  static wire::CompileRequest Over(uint64_t number, int rows, const std::string& name) {
    wire::CompileRequest request = Request(number, ProductOver(rows, name), 4 * rows);
    request.set_spans_workers(true);
    return request;
  }
};

// 2,048 positions twice, with compiles for one device before, between and behind them.
TEST_F(PositionsTest, ManyPositionsKeepTheLimitsBesideOtherCompiles) {
  Send(Request(1, SumOf(1), 1));
  Send(Over(2, 4, "warm"));  // what the plugin starts only once is there
  ASSERT_FALSE(WaitResult(2).has_failure()) << wire::ToText(WaitResult(2).failure());
  Peak peak;
  const Usage before = UsageNow();
  for (uint64_t round : {0, 10}) {
    Send(Request(11 + round, SumOf(static_cast<int>(11 + round)), 1));
    Send(Over(12 + round, kSpanMax / 4, absl::StrCat("wide", round)));
    Send(Request(13 + round, SumOf(static_cast<int>(13 + round)), 1));
    Send(Request(14 + round, SumOf(1), 1));
    EXPECT_TRUE(WaitResult(14 + round).from_cache());
    MutexLock lock(mutex_);
    EXPECT_FALSE(results_.contains(12 + round)) << "what is in the cache does not wait";
  }
  for (uint64_t round : {0, 10}) {
    for (uint64_t number : {11, 12, 13})
      ASSERT_FALSE(WaitResult(number + round).has_failure())
          << wire::ToText(WaitResult(number + round).failure());
    const wire::CompileResult wide = WaitResult(12 + round);
    EXPECT_EQ(wide.positions().partitions(), kSpanMax);
    xla::LoweredExecutable lowered;
    ASSERT_TRUE(lowered.ParseFromString(wide.serialized()));
    ASSERT_EQ(lowered.table().collectives_size(), 1);
    EXPECT_EQ(lowered.table().groups(0).groups_size(), static_cast<int>(kSpanMax / 4));
  }
  const Usage most = peak.Read();
  EXPECT_GT(most.threads, before.threads + kSpanMax / 2) << "nothing was measured";
  EXPECT_LE(most.threads, before.threads + kSpanMax + kPartitionThreads) << "one at a time";
  if (!kIsSanitized) {
    EXPECT_LE(most.resident_bytes, before.resident_bytes + kSpanMax * kPartitionBytes);
  }
  Usage now;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  do {
    now = UsageNow();
  } while (!IsBack(before, now) && std::chrono::steady_clock::now() < deadline);
  EXPECT_LE(now.threads, before.threads);
  if (!kIsSanitized) {
    EXPECT_TRUE(IsBack(before, now)) << before.resident_bytes << " bytes before, "
                                     << most.resident_bytes << " at most, " << now.resident_bytes;
  }
}

// Of a program for two replicas that the plugin has no code for.
xla::CollectiveTable TableOf(const std::string& program) {
  wire::CompileRequest request = Request(1, program, 2);
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(2);
  options.mutable_executable_build_options()->set_num_partitions(1);
  request.set_options(options.SerializeAsString());
  auto partitioned = Partition(Backend(), request, OpenPartitioner, Exchanges::kOfArrays);
  if (!partitioned.ok()) {
    ADD_FAILURE() << partitioned.status();
    return {};
  }
  EXPECT_TRUE(absl::IsUnimplemented(partitioned->costs.status()))
      << "there was no executable to ask";
  auto lowered = collective::LowerCollectives(partitioned->program);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered.ok() ? lowered->table : xla::CollectiveTable();
}

constexpr char kBroadcast[] = R"(
module @broadcast attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = stablehlo.tanh %x : tensor<8xf32>
    %z = "stablehlo.collective_broadcast"(%y) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}
        : (tensor<8xf32>) -> tensor<8xf32>
    return %z : tensor<8xf32>
  }
})";

// A channel of 0 is none. Without the attribute the plugin crashes.
constexpr char kRagged[] = R"(
module @ragged attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %a: tensor<2xi32>, %b: tensor<2xi32>,
                         %c: tensor<2xi32>, %d: tensor<2xi32>) -> tensor<4xf32> {
    %z = stablehlo.custom_call @ragged_all_to_all(%x, %y, %a, %b, %c, %d) {api_version = 4 : i32,
        backend_config = {channel_id = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
        : (tensor<4xf32>, tensor<4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
        -> tensor<4xf32>
    return %z : tensor<4xf32>
  }
})";

// The plugin's compile fails for both: it has no code for them.
TEST(PartitionTest, WhatThePluginHasNoCodeForIsPartitioned) {
  wire::CompileRequest request = Request(1, kBroadcast, 1);
  EXPECT_THAT(CompileForPositions(Backend(), request, request.options()).status().ToString(),
              HasSubstr("is not supported"));
  const xla::CollectiveTable broadcast = TableOf(kBroadcast);
  ASSERT_EQ(broadcast.collectives_size(), 1);
  EXPECT_EQ(broadcast.collectives(0).kind(), xla::Collective::BROADCAST);
  EXPECT_EQ(broadcast.replica_count(), 2u);
  EXPECT_EQ(broadcast.groups(0).groups(0).positions(0), 1u);
  const xla::CollectiveTable ragged = TableOf(kRagged);
  ASSERT_EQ(ragged.collectives_size(), 1);
  EXPECT_EQ(ragged.collectives(0).kind(), xla::Collective::RAGGED_ALL_TO_ALL);
}

}  // namespace
}  // namespace gangway::compiler
