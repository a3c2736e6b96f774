// Tests the compiler with the real XLA plugin, over the in-process transport. The test plays the
// head.
#include "gangway/compiler/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gangway/compiler/compiler_test_util.h"
#include "gangway/compiler/confinement.h"
#include "gangway/compiler/hlo_conversion.h"
#include "gangway/device/pjrt/compile_options_edit.h"
#include "gangway/xla/collectives.pb.h"
#include "gangway/xla/executable.h"
#include "gangway/xla/hlo_edit.pb.h"
#include "gangway/xla/sharded_calls.h"
#include "gangway/xla/sharded_calls.pb.h"

namespace gangway::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kF32 = 11;

constexpr char kDouble[] = R"(
module @double {
  func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %y = stablehlo.add %x, %x : tensor<4xf32>
    return %y : tensor<4xf32>
  }
})";

constexpr char kSharded[] = R"(
module @sharded attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,1]0,1}"})
      -> (tensor<8x4xf32> {mhlo.sharding = "{devices=[2,1]0,1}"}) {
    %y = stablehlo.multiply %x, %x : tensor<8x4xf32>
    return %y : tensor<8x4xf32>
  }
})";

// Of `count` positions, which do not communicate.
std::string ShardedOver(int count) {
  return absl::StrReplaceAll(kSharded,
                             {{"num_partitions = 2", absl::StrCat("num_partitions = ", count)},
                              {"[2,1]0,1", absl::StrCat("[", count, ",1]<=[", count, "]")}});
}

// An array of `type` over two positions becomes a whole one on each.
std::string Gathering(const std::string& type) {
  const std::string array = absl::StrCat("tensor<8x4x", type, ">");
  return absl::StrReplaceAll(kSharded,
                             {{"stablehlo.multiply %x, %x : tensor<8x4xf32>",
                               absl::StrCat("stablehlo.reshape %x : (", array, ") -> ", array)},
                              {"-> (tensor<8x4xf32> {mhlo.sharding = \"{devices=[2,1]0,1}\"})",
                               absl::StrCat("-> (", array, " {mhlo.sharding = \"{replicated}\"})")},
                              {"f32", type}});
}

constexpr char kSumOfAll[] = R"(
module @sum attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<8xf32> {mhlo.sharding = "{devices=[2]0,1}"}) -> tensor<f32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
})";

// Some seconds to compile.
std::string SlowProgram() {
  std::string text =
      "module @slow {\n  func.func public @main(%x0: tensor<64x64xf32>) -> tensor<64x64xf32> {\n";
  constexpr int kSteps = 1500;
  for (int i = 0; i < kSteps; ++i) {
    absl::StrAppend(&text, "    %y", i, " = stablehlo.dot_general %x", i, ", %x", i,
                    ", contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> "
                    "tensor<64x64xf32>\n    %x",
                    i + 1, " = stablehlo.tanh %y", i, " : tensor<64x64xf32>\n");
  }
  absl::StrAppend(&text, "    return %x", kSteps, " : tensor<64x64xf32>\n  }\n}");
  return text;
}

TEST_F(CompilerTest, WhatItCompilesLoadsAndRunsOnAnyDevice) {
  Start();  // before the head listens
  Listen();
  ASSERT_TRUE(WaitHello());
  {
    MutexLock lock(mutex_);
    EXPECT_EQ(hello_->role(), wire::ROLE_COMPILER);
    EXPECT_EQ(hello_->protocol_version(), wire::kProtocolVersion);
    EXPECT_EQ(hello_->process_id(), static_cast<uint64_t>(getpid()));
  }
  wire::CompileRequest request = Request(7, kDouble, 1);
  Send(request);
  wire::CompileResult result = WaitResult(7);
  ASSERT_FALSE(result.has_failure()) << wire::ToText(result.failure());
  EXPECT_FALSE(result.from_cache());
  EXPECT_NE(result.info().name().find("double"), std::string::npos) << result.info().name();
  EXPECT_EQ(result.info().device_count(), 1u);
  ASSERT_EQ(result.info().parameters_size(), 1);
  EXPECT_EQ(result.info().parameters(0).element_type(), kF32);
  EXPECT_EQ(result.info().parameters(0).shard_bytes(), 16u);
  ASSERT_EQ(result.info().results_size(), 1);
  ASSERT_EQ(result.info().donated_size(), 1);
  EXPECT_EQ(result.info().donated(0), 0u);
  EXPECT_EQ(result.info().memory().argument_bytes(), 16u);
  EXPECT_EQ(result.info().memory().output_bytes(), 16u);
  EXPECT_EQ(result.info().fingerprint().size(), 64u);
  EXPECT_FALSE(result.info().optimized_program().empty());

  const int device = 1;
  auto executable = Backend().Load(result.serialized(), std::span(&device, 1));
  ASSERT_TRUE(executable.ok()) << executable.status();
  float in[4] = {1, 2, 3, 4}, out[4] = {};
  auto argument =
      Backend().BufferFromHost(device, "", {kF32, {4}}, std::as_bytes(std::span(in)),
                               device::HostSemantics::kCopyDuringCall, [](absl::Status) {});
  ASSERT_TRUE(argument.ok()) << argument.status();
  device::Buffer* arguments[] = {argument->get()};
  auto outputs = (*executable)->ExecuteOn(device, arguments, {}, [](absl::Status) {});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  Mutex mutex;
  CondVar copied;
  bool done = false;
  (*outputs)[0]->CopyToHost(out, sizeof(out), [&](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    MutexLock lock(mutex);
    done = true;
    copied.NotifyAll();
  });
  MutexLock lock(mutex);
  ASSERT_TRUE(copied.WaitFor(mutex, kLimit, [&] { return done; }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], 2 * in[i]);
}

// Adds 64 Ki numbers of four different bytes.
std::string AddsConstants() {
  std::string values;
  for (int i = 0; i < 1 << 16; ++i) absl::StrAppend(&values, absl::Hex(i, absl::kZeroPad8));
  return absl::StrReplaceAll(R"(
module @adds {
  func.func public @main(%x: tensor<65536xi32>) -> tensor<65536xi32> {
    %c = stablehlo.constant dense<"0xVALUES"> : tensor<65536xi32>
    %y = stablehlo.add %x, %c : tensor<65536xi32>
    return %y : tensor<65536xi32>
  }
})",
                             {{"VALUES", values}});
}

TEST_F(CompilerTest, TheValuesOfLargeConstantsAreInTheExecutableOnly) {
  for (int devices : {1, 2}) {
    wire::CompileRequest request = Request(1, AddsConstants(), devices);
    request.set_spans_workers(devices > 1);
    const auto result = Compile(Backend(), request, OpenPartitioner);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(result->serialized().size(), size_t{4} << 16);
    EXPECT_LT(result->info().optimized_program().size(), size_t{1} << 14);
    const auto text = xla::ProgramText(result->info().optimized_program());
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_NE(text->find("constant()"), std::string::npos) << *text;
  }
}

TEST_F(CompilerTest, AShardedProgramIsDescribedPerDevice) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(1, kSharded, 2));
  wire::CompileResult result = WaitResult(1);
  ASSERT_FALSE(result.has_failure()) << wire::ToText(result.failure());
  ASSERT_EQ(result.info().results_size(), 1);
  EXPECT_EQ(result.info().device_count(), 2u);
  EXPECT_EQ(result.info().results(0).shard_dims(0), 4);
  EXPECT_EQ(result.info().results(0).shard_bytes(), 64u);
  EXPECT_EQ(result.info().donated_size(), 0);
}

TEST_F(CompilerTest, AProgramOverWorkersIsForOnePosition) {
  int opened = 0;
  options_.open = [&opened](int device_count) {
    ++opened;
    return OpenPartitioner(device_count);
  };
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  wire::CompileRequest wide = Request(1, ShardedOver(8), 8);  // more than the compiler has
  wide.set_spans_workers(true);
  Send(wide);
  const wire::CompileResult result = WaitResult(1);
  ASSERT_FALSE(result.has_failure()) << wire::ToText(result.failure());
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(result.positions().partitions(), 8u);
  EXPECT_EQ(result.positions().replicas(), 1u);
  EXPECT_EQ(result.info().device_count(), 8u);
  const int device = 1;
  xla::LoweredExecutable lowered;
  ASSERT_TRUE(lowered.ParseFromString(result.serialized()));
  EXPECT_EQ(lowered.table().partition_count(), 8u);
  auto executable = Backend().Load(lowered.executable(), std::span(&device, 1));
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ((*executable)->num_partitions(), 1);
  wide.set_request(2);
  Send(wide);
  EXPECT_TRUE(WaitResult(2).from_cache());
  EXPECT_EQ(WaitResult(2).positions().partitions(), 8u);
  wire::CompileRequest narrow = Request(3, kSharded, 2);
  Send(narrow);
  narrow.set_request(4);
  narrow.set_spans_workers(true);
  EXPECT_FALSE(WaitResult(3).has_positions());
  Send(narrow);
  EXPECT_FALSE(WaitResult(4).from_cache()) << "another executable of the same program";
  EXPECT_TRUE(WaitResult(4).has_positions());
  narrow.set_request(5);
  narrow.set_spans_workers(false);
  narrow.set_own_collectives(true);
  Send(narrow);
  EXPECT_FALSE(WaitResult(5).from_cache()) << "another mode";
  narrow.set_request(6);
  narrow.set_options(*xla::WithDevices(narrow.options(), std::vector<uint32_t>{1, 0}));
  Send(narrow);
  EXPECT_TRUE(WaitResult(6).from_cache()) << "elsewhere";
}

TEST_F(CompilerTest, CollectivesAreTakenOutOverWorkersAndWhereTheyAreAskedFor) {
  wire::CompileRequest request = Request(1, kSumOfAll, 2);
  auto table = [&](const OpenBackend& how) {
    auto result = Compile(Backend(), request, how);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->info().has_collectives());
    xla::LoweredExecutable lowered;
    EXPECT_TRUE(!result->has_positions() || lowered.ParseFromString(result->serialized()));
    return lowered.table();
  };
  EXPECT_EQ(table(OpenPartitioner).collectives_size(), 0);
  request.set_spans_workers(true);
  EXPECT_EQ(table(OpenPartitioner).collectives_size(), 1);
  EXPECT_FALSE(table(OpenPartitioner).may_diverge());
  wire::CompileRequest hlo = request;
  hlo.set_format("hlo");
  const auto converted = ConvertToHlo(Backend(), request);
  ASSERT_TRUE(converted.ok()) << converted.status();
  hlo.set_program(*converted);
  std::swap(request, hlo);
  EXPECT_TRUE(table(OpenPartitioner).may_diverge()) << "its loops may not be as long as it says";
  std::swap(request, hlo);
  request.set_spans_workers(false);
  request.set_own_collectives(true);
  ASSERT_EQ(table(OpenPartitioner).collectives_size(), 1);
  EXPECT_EQ(table(OpenPartitioner).collectives(0).kind(), xla::Collective::ALL_REDUCE);
  EXPECT_EQ(table(nullptr).collectives_size(), 0) << "then the runtime's own do";
}

constexpr char kExchange[] = R"(
module @exchange attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<400x600xf32>) -> tensor<400x600xf32> {
    %y = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64,
        split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
        : (tensor<400x600xf32>) -> tensor<400x600xf32>
    return %y : tensor<400x600xf32>
  }
})";

// XLA would make slices of it, which are better only if its pieces are small and many.
TEST_F(CompilerTest, AnArrayIsExchangedAsOneUnlessItsPiecesAreSmallAndMany) {
  wire::CompileRequest request = Request(1, kExchange, 2);
  xla::CompileOptionsProto options;
  ASSERT_TRUE(options.ParseFromString(request.options()));
  options.mutable_executable_build_options()->set_num_replicas(2);
  options.mutable_executable_build_options()->set_num_partitions(1);
  request.set_options(options.SerializeAsString());
  request.set_spans_workers(true);
  const auto compile = [&](xla::Collective::Kind kind) {
    const auto result = Compile(Backend(), request, OpenPartitioner);
    EXPECT_TRUE(result.ok()) << result.status();
    xla::LoweredExecutable lowered;
    EXPECT_TRUE(lowered.ParseFromString(result->serialized()));
    EXPECT_EQ(lowered.table().collectives_size(), 1);
    EXPECT_EQ(lowered.table().collectives(0).kind(), kind);
    EXPECT_GT(result->info().cost().at("bytes accessed"), 0);
    return result->info().memory().temp_bytes();
  };
  EXPECT_LT(compile(xla::Collective::ALL_TO_ALL), 1000) << "there are copies";
  const auto split_rows = [&](const char* shape) {
    request.set_program(
        absl::StrReplaceAll(kExchange, {{"dimension = 0", "dimension = 1"}, {"400x600", shape}}));
  };
  split_rows("400x600");
  compile(xla::Collective::ALL_TO_ALL_TUPLE);  // 1,200 bytes of each row
  split_rows("257x32766");
  compile(xla::Collective::ALL_TO_ALL_TUPLE);  // 65,532 bytes
  split_rows("256x32766");
  compile(xla::Collective::ALL_TO_ALL);  // only 256 of them
  split_rows("257x32768");
  compile(xla::Collective::ALL_TO_ALL);  // 64 KiB
  setenv("XLA_FLAGS", "--xla_disable_hlo_passes=another", 1);
  compile(xla::Collective::ALL_TO_ALL_TUPLE);  // the flags choose the passes, so none is disabled
  unsetenv("XLA_FLAGS");
}

// Clients see the partitioned program, and the memory that is charged is that of the program which runs.
TEST_F(CompilerTest, TheMemoryOfAProgramOverWorkersIsThatOfItsExecutable_GS2) {
  wire::CompileRequest request = Request(1, kSumOfAll, 2);
  const auto partitioned = Compile(Backend(), request, OpenPartitioner);
  ASSERT_TRUE(partitioned.ok()) << partitioned.status();
  request.set_spans_workers(true);
  const auto result = Compile(Backend(), request, OpenPartitioner);
  ASSERT_TRUE(result.ok()) << result.status();
  xla::LoweredExecutable lowered;
  ASSERT_TRUE(lowered.ParseFromString(result->serialized()));
  const int device = 0;
  auto executable = Backend().Load(lowered.executable(), std::span(&device, 1));
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto memory = (*executable)->GetMemoryStats();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(result->info().memory().temp_bytes(), memory->temp_bytes);
  EXPECT_NE(result->info().memory().temp_bytes(), partitioned->info().memory().temp_bytes())
      << "then this test cannot tell them apart";
}

// The calls that have taken the place of collectives count as unknown.
TEST_F(CompilerTest, TheCostsOfAProgramOverWorkersAreThoseOfThePartitionedProgram) {
  wire::CompileRequest request = Request(1, kSumOfAll, 2);
  const auto costs = [&] {
    const auto result = Compile(Backend(), request, OpenPartitioner);
    EXPECT_TRUE(result.ok()) << result.status();
    const auto& cost = result->info().cost();
    return std::map<std::string, double>(cost.begin(), cost.end());
  };
  const std::map<std::string, double> in_one_process = costs();
  ASSERT_GT(in_one_process.at("flops"), 0);
  ASSERT_GT(in_one_process.at("bytes accessed"), 0);
  request.set_spans_workers(true);
  EXPECT_EQ(costs(), in_one_process);
  request.set_spans_workers(false);
  request.set_own_collectives(true);
  EXPECT_EQ(costs(), in_one_process);
}

// The real backend under another description.
class DescribedAs : public device::Backend {
 public:
  explicit DescribedAs(device::Capabilities capabilities)
      : capabilities_(std::move(capabilities)) {}
  const device::Capabilities& capabilities() const override { return capabilities_; }
  std::span<const device::DeviceInfo> devices() const override { return real_.devices(); }
  absl::StatusOr<std::unique_ptr<device::Executable>> Compile(
      const device::Program& program, std::string_view options,
      std::span<const int> devices) override {
    return real_.Compile(program, options, devices);
  }
  absl::StatusOr<std::unique_ptr<device::Executable>> Load(std::string_view serialized,
                                                           std::span<const int> devices) override {
    return real_.Load(serialized, devices);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> BufferFromHost(
      int device, std::string_view memory_kind, const device::ArraySpec& spec,
      std::span<const std::byte> bytes, device::HostSemantics semantics,
      device::StatusCallback on_done) override {
    return real_.BufferFromHost(device, memory_kind, spec, bytes, semantics, std::move(on_done));
  }
  absl::StatusOr<device::Placeholder> CreatePlaceholder(int device,
                                                        const device::ArraySpec& spec) override {
    return real_.CreatePlaceholder(device, spec);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> CreateErrorBuffer(int device,
                                                                    const device::ArraySpec& spec,
                                                                    absl::Status error) override {
    return real_.CreateErrorBuffer(device, spec, std::move(error));
  }
  absl::Status RegisterFfiHandlers(std::span<const device::FfiHandler> handlers) override {
    return real_.RegisterFfiHandlers(handlers);
  }

 private:
  device::Backend& real_ = compiler::Backend();  // inside of this class, Backend is the base
  const device::Capabilities capabilities_;
};

// Each on its own: the backend and the partitioner are those with which it works.
TEST_F(CompilerTest, ARuntimeWithoutFfiHandlersOrOfAnotherPlatformCannotSpanWorkers) {
  wire::CompileRequest spanning = Request(1, kSumOfAll, 2);
  spanning.set_spans_workers(true);
  wire::CompileRequest inside = Request(2, kSumOfAll, 2);
  inside.set_own_collectives(true);
  int opened = 0;
  const auto open = [&](int device_count) {
    ++opened;
    return OpenPartitioner(device_count);
  };
  const auto expect_refused = [&](const device::Capabilities& capabilities) {
    DescribedAs backend(capabilities);
    const auto refused = Compile(backend, spanning, open);
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_TRUE(refused->refused_over_workers());
    EXPECT_THAT(
        wire::ToStatus(refused->failure()).ToString(),
        HasSubstr(absl::StrCat("UNIMPLEMENTED: a program cannot span devices of several workers on "
                               "platform ",
                               capabilities.platform)));
    const auto result = Compile(backend, inside, open);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->has_positions()) << "the runtime's own collectives do";
    EXPECT_EQ(opened, 0);
  };
  device::Capabilities without_handlers = Backend().capabilities();
  without_handlers.ffi_handlers = device::Capabilities::FfiHandlers::kNone;
  expect_refused(without_handlers);
  device::Capabilities other_platform = Backend().capabilities();
  other_platform.platform = "cuda";
  expect_refused(other_platform);
  DescribedAs same(Backend().capabilities());
  for (const wire::CompileRequest& request : {spanning, inside}) {
    const auto result = Compile(same, request, open);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->has_positions());
  }
  EXPECT_EQ(opened, 0) << "it has a device for each position";
}

TEST_F(CompilerTest, WhatCannotSpanWorkersIsRefused) {
  wire::CompileRequest request = Request(1, kSharded, 2);
  request.set_spans_workers(true);
  auto refused = [&](const OpenBackend& open) {
    const auto result = Compile(Backend(), request, open);
    if (!result.ok()) return result.status().ToString();
    EXPECT_TRUE(result->refused_over_workers());
    EXPECT_THAT(result->failure().advice(), HasSubstr("one worker"));
    return wire::ToStatus(result->failure()).ToString();
  };
  EXPECT_THAT(refused(nullptr), HasSubstr("UNIMPLEMENTED: a program cannot span"));
  request.set_device_count(kSpanMax + 1);
  EXPECT_THAT(refused(OpenPartitioner), HasSubstr("RESOURCE_EXHAUSTED"));
  request.set_device_count(8);  // more than the compiler has
  EXPECT_THAT(refused([](int) { return absl::AbortedError("no threads"); }),
              HasSubstr("no threads"));
}

TEST_F(CompilerTest, IntegersOfLessThanAByteAreCarriedButNotByTheRuntime) {
  wire::CompileRequest request = Request(1, Gathering("i2"), 2);
  request.set_own_collectives(true);
  const auto lowered = Compile(Backend(), request, OpenPartitioner);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(lowered->has_positions());
  request.set_own_collectives(false);
  const absl::Status kept = Compile(Backend(), request, OpenPartitioner).status();
  EXPECT_EQ(kept.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(kept.ToString(), HasSubstr("its elements are s2"));
}

TEST_F(CompilerTest, OverWorkersLayoutsMayBeAskedForToo) {
  wire::CompileRequest request = Request(1, kSharded, 2);
  request.set_spans_workers(true);
  xla::CompileOptionsProto options;
  ASSERT_TRUE(options.ParseFromString(request.options()));
  xla::ShapeProto whole;
  whole.set_element_type(xla::TYPE_F32);
  for (const int size : {8, 4}) whole.add_dimensions(size);
  for (const int dimension : {1, 0}) whole.mutable_layout()->add_minor_to_major(dimension);
  *options.add_argument_layouts() = whole;
  *options.mutable_executable_build_options()->mutable_result_layout() = whole;
  request.set_options(options.SerializeAsString());
  EXPECT_EQ(Compile(Backend(), request, OpenPartitioner).status(), absl::OkStatus());
}

// What XLA CPU takes for a program of one replica and two partitions.
TEST_F(CompilerTest, ACollectiveWhoseMembersDoNotExistIsRefused) {
  constexpr char kProgram[] = R"(
module @members attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg: tensor<4xf32> {mhlo.sharding = "{replicated}"})
      -> (tensor<4xf32> {mhlo.sharding = "{replicated}"}) {
    %s = stablehlo.custom_call @Sharding(%arg) {mhlo.sharding = "{replicated}"}
        : (tensor<4xf32>) -> tensor<4xf32>
    %x = stablehlo.custom_call @SPMDFullToShardShape(%s) {mhlo.sharding = "{manual}"}
        : (tensor<4xf32>) -> tensor<4xf32>
    %y = "stablehlo.OPERATION}
        : (tensor<4xf32>) -> tensor<4xf32>
    %m = stablehlo.custom_call @Sharding(%y) {mhlo.sharding = "{manual}"}
        : (tensor<4xf32>) -> tensor<4xf32>
    %f = stablehlo.custom_call @SPMDShardToFullShape(%m) {mhlo.sharding = "{replicated}"}
        : (tensor<4xf32>) -> tensor<4xf32>
    return %f : tensor<4xf32>
  }
})";
  constexpr char kReduce[] = R"(all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>)";
  constexpr char kPermute[] =
      R"(collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>)";
  constexpr char kChannel[] = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>";
  const auto compiled = [&](const std::string& operation, device::Backend& backend = Backend()) {
    const std::string program = absl::StrReplaceAll(kProgram, {{"OPERATION", operation}});
    return Compile(backend, Request(1, program, 2)).status();
  };
  EXPECT_THAT(compiled(kReduce).ToString(),
              AllOf(HasSubstr("all-reduce"), HasSubstr("2 members, and the program 1")));
  EXPECT_THAT(compiled(kPermute).ToString(),
              AllOf(HasSubstr("collective-permute"), HasSubstr("outside of the program's 1")));
  EXPECT_EQ(compiled(absl::StrCat(kReduce, kChannel, ", use_global_device_ids")), absl::OkStatus());
  EXPECT_EQ(compiled(absl::StrCat(kPermute, kChannel)), absl::OkStatus());
  device::Capabilities capabilities = Backend().capabilities();
  capabilities.platform = "cuda";
  DescribedAs other(capabilities);
  EXPECT_EQ(compiled(kPermute, other), absl::OkStatus()) << "another runtime decides itself";
}

// The target's handler is registered, so the plugin itself would not refuse the program.
TEST_F(CompilerTest, AProgramMayNotCallWhatOnlyTheLoweringCalls) {
  constexpr char kCall[] = R"(
module @call {
  func.func public @main() -> tensor<ui32> {
    %y = stablehlo.custom_call @gangway.position() {api_version = 4 : i32,
        backend_config = {replica = false}} : () -> tensor<ui32>
    return %y : tensor<ui32>
  }
})";
  const absl::Status refused = Compile(Backend(), Request(1, kCall, 1)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("calls gangway.position, which no program"));
}

// Else it would run on each of the devices apart.
TEST_F(CompilerTest, AClientsProgramIsNotPortable) {
  wire::CompileRequest request = Request(1, kDouble, 2);
  xla::CompileOptionsProto options;
  options.set_compile_portable_executable(true);
  options.mutable_executable_build_options()->set_num_replicas(1);
  request.set_options(options.SerializeAsString());
  EXPECT_EQ(Compile(Backend(), request).status().code(), absl::StatusCode::kInvalidArgument);
  request.set_device_count(1);
  EXPECT_TRUE(Compile(Backend(), request).ok());
}

TEST_F(CompilerTest, TheNextProcessFindsItInTheCache) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(1, kDouble, 1));
  wire::CompileResult first = WaitResult(1);
  Send(Request(2, kDouble, 1));
  wire::CompileResult second = WaitResult(2);
  EXPECT_TRUE(second.from_cache());
  Stop();
  EXPECT_TRUE(WaitRunEnded().ok());
  {
    MutexLock lock(mutex_);
    hello_.reset();
    sequence_ = 0;
  }
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(3, kDouble, 1));
  wire::CompileResult third = WaitResult(3);
  EXPECT_FALSE(first.from_cache());
  EXPECT_TRUE(third.from_cache());
  EXPECT_EQ(third.serialized(), first.serialized());
  EXPECT_EQ(third.info().SerializeAsString().size(), first.info().SerializeAsString().size());
}

// The request with an option that is set by its name: an entry of env_option_overrides.
wire::CompileRequest With(wire::CompileRequest request, std::string_view name,
                          std::string_view value) {
  request.set_options(device::WithXlaOption(request.options(), name, value));
  return request;
}

TEST_F(CompilerTest, OptionsThatAClientMaySetHaveOneEntryAndOthersNone) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  const std::filesystem::path chosen = folder_ / "chosen";
  wire::CompileRequest refused = With(Request(1, kDouble, 1), "xla_dump_to", chosen.native());
  refused.set_lookup_only(true);  // as each program is looked up, before it is compiled
  Send(refused);
  const wire::CompileResult result = WaitResult(1);
  EXPECT_EQ(result.failure().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(result.failure().message(), HasSubstr("'xla_dump_to' is refused"));
  Send(With(Request(2, kDouble, 1), "xla_cpu_enable_fast_math", "True"));
  EXPECT_FALSE(WaitResult(2).from_cache()) << "a refused option left an entry";
  Send(With(With(Request(3, kDouble, 1), "xla_force_host_platform_device_count", "8"),
            "xla_cpu_enable_fast_math", "1"));
  EXPECT_TRUE(WaitResult(3).from_cache());
  Send(Request(4, kDouble, 1));
  EXPECT_FALSE(WaitResult(4).from_cache()) << "its programs are other ones";
  EXPECT_FALSE(std::filesystem::exists(chosen));
}

TEST_F(CompilerTest, BadRequestsFailAloneAndInOrder) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(1, "this is no program", 1));
  Send(Request(2, kSharded, 64));
  Send(Request(3, kDouble, 0));
  wire::CompileRequest bad_options = Request(4, kDouble, 1);
  bad_options.set_options("\xff\xff");
  Send(bad_options);
  wire::CompileRequest bad_format = Request(5, kDouble, 1);
  bad_format.set_format("poetry");
  Send(bad_format);
  Send(Request(6, kDouble, 1));
  EXPECT_FALSE(WaitResult(6).has_failure());
  for (uint64_t request = 1; request <= 5; ++request) {
    EXPECT_TRUE(WaitResult(request).has_failure()) << request;
    EXPECT_FALSE(WaitResult(request).failure().message().empty()) << request;
  }
  EXPECT_THAT(WaitResult(2).failure().message(), HasSubstr("2 positions"));
}

// Each program is refused by the real plugin; the words are of the advice that its text leads to.
TEST_F(CompilerTest, RefusalsOfTheRuntimeSayWhatToDo) {
  struct Case {
    const char* body;
    const char* said;
    const char* advice;
    int devices = 1;
  };
  const Case cases[] = {
      {"%i = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi2>\n"
       "%s = \"stablehlo.all_reduce\"(%i) ({ ^b(%p: tensor<i2>, %q: tensor<i2>):\n"
       "  %r = stablehlo.add %p, %q : tensor<i2>\n  stablehlo.return %r : tensor<i2> })\n"
       " {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = "
       "#stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<4xi2>) "
       "-> "
       "tensor<4xi2>\n"
       "%y = stablehlo.convert %s : (tensor<4xi2>) -> tensor<4xf32>",
       "for datatype 's2'", "x.astype(jnp.int8)", 2},
      {"%y = stablehlo.subtract %x, %nothing : tensor<4xf32>", "undeclared", "gangway up --plugin"},
  };
  for (const Case& each : cases) {
    const std::string program =
        absl::StrCat("module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n",
                     each.body, "\nreturn %y : tensor<4xf32> } }");
    const auto refused = Compile(Backend(), Request(1, program, each.devices));
    ASSERT_FALSE(refused.ok()) << each.said;
    const wire::Failure failure = wire::ToFailure(refused.status());
    EXPECT_THAT(failure.message(),
                AllOf(HasSubstr("the devices' runtime does not compile the program: "),
                      HasSubstr(each.said)));
    EXPECT_THAT(failure.advice(), HasSubstr(each.advice)) << failure.message();
  }
}

// XLA CPU compiles them, and the device would wait for good.
TEST_F(CompilerTest, ProgramsThatTheHostWouldFeedAreRefused) {
  for (const char* feed :
       {"%z:2 = \"stablehlo.infeed\"(%t) {infeed_config = \"\"} : (!stablehlo.token) -> "
        "(tensor<4xf32>, !stablehlo.token)",
        "%z = \"stablehlo.outfeed\"(%x, %t) {outfeed_config = \"\"} : (tensor<4xf32>, "
        "!stablehlo.token) -> !stablehlo.token"}) {
    const std::string program =
        absl::StrCat("module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n",
                     "%t = stablehlo.create_token : !stablehlo.token\n", feed,
                     "\nreturn %x : tensor<4xf32> } }");
    const absl::Status refused = Compile(Backend(), Request(1, program, 1)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is not taken from clients"));
  }
}

// XLA writes what is checked to a file. Without one, nothing is known of the program.
TEST_F(CompilerTest, NothingIsCompiledWithoutItsCheck) {
  setenv("TMPDIR", "/proc/self", 1);  // a folder, but not for files
  const absl::Status compiled =
      Compile(Backend(), Request(1, kSharded, 2), OpenPartitioner).status();
  unsetenv("TMPDIR");
  EXPECT_EQ(compiled.code(), absl::StatusCode::kUnavailable) << compiled;
  EXPECT_THAT(std::string(compiled.message()), HasSubstr("/proc/self"));
}

TEST_F(CompilerTest, ModulesOfAScriptsAnswersAreCheckedAsProgramsAre) {
  xla::ProgramWithCalls program;
  program.set_program(kSharded);
  program.set_format("mlir");
  program.add_calls()->set_module("module { nonsense }");
  wire::CompileRequest request = Request(1, program.SerializeAsString(), 2);
  request.set_format(std::string(xla::kProgramWithCalls));
  const absl::Status compiled = Compile(Backend(), request, OpenPartitioner).status();
  EXPECT_THAT(std::string(compiled.message()), HasSubstr("nonsense")) << compiled;
}

TEST_F(CompilerTest, AProgramWithCallsIsRefusedIfItIsMalformed) {
  xla::ProgramWithCalls nested;
  nested.set_program("x");
  nested.set_format(std::string(xla::kProgramWithCalls));
  for (const std::string& program : {std::string("\xff\xff"), nested.SerializeAsString()}) {
    wire::CompileRequest request = Request(1, program, 2);
    request.set_format(std::string(xla::kProgramWithCalls));
    EXPECT_EQ(Compile(Backend(), request, OpenPartitioner).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(CompilerTest, MoreRequestsThanTheQueueHoldsAreRefused) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  // The first request keeps the compiler busy while the others arrive.
  const uint64_t count = kPendingRequestsMax + 5000;
  Send(Request(1, kSharded, 2));
  for (uint64_t request = 2; request <= count; ++request) Send(Request(request, "nonsense", 1));
  uint64_t refused = 0;
  for (uint64_t request = 1; request <= count; ++request) {
    refused += WaitResult(request).failure().code() ==
               static_cast<int>(absl::StatusCode::kResourceExhausted);
  }
  EXPECT_GT(refused, 0u);
  Send(Request(count + 1, kDouble, 1));
  EXPECT_FALSE(WaitResult(count + 1).has_failure());
}

TEST_F(CompilerTest, BeatsWhateverIsCompiled) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  for (uint64_t request = 1; request <= 50; ++request) {
    wire::CompileRequest each = Request(request, kDouble, 1);
    each.mutable_program()->append("// " + std::to_string(request));
    Send(each);
  }
  MutexLock lock(mutex_);
  EXPECT_TRUE(changed_.WaitFor(mutex_, std::chrono::seconds(5),
                               [this]() GANGWAY_NO_ANALYSIS { return heartbeats_ >= 3; }));
}

TEST_F(CompilerTest, ALookupIsAnsweredWhileACompileRuns) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(1, kDouble, 1));
  EXPECT_FALSE(WaitResult(1).has_failure());
  Send(Request(2, SlowProgram(), 1));
  for (uint64_t number : {3, 4}) {
    wire::CompileRequest lookup = Request(number, number == 3 ? kDouble : kSharded, number - 2);
    lookup.set_lookup_only(true);
    Send(std::move(lookup));
  }
  EXPECT_TRUE(WaitResult(3).from_cache());
  EXPECT_TRUE(WaitResult(4).not_cached());
  Send(Request(5, kDouble, 1));
  EXPECT_TRUE(WaitResult(5).from_cache()) << "not only a lookup, and cached";
  {
    MutexLock lock(mutex_);
    EXPECT_FALSE(results_.contains(2)) << "the compile was still running";
  }
  EXPECT_FALSE(WaitResult(2).has_failure());
}

// The test's process has more than these limits before it compiles.
TEST_F(CompilerTest, ACompileAboveTheMemorysLimitIsRefusedAtOnceAndAsksForAnotherProcess) {
  options_.memory_bytes_max = 1 << 20;
  options_.index = 1;
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  {
    MutexLock lock(mutex_);
    EXPECT_EQ(hello_->compiler(), 1u);
  }
  Send(Request(1, kDouble, 1));
  WaitResult(0);  // what it keeps is too much, too
  const wire::CompileResult result = WaitResult(1);
  EXPECT_EQ(result.failure().code(), static_cast<int>(absl::StatusCode::kResourceExhausted))
      << "the compile, which ended later, was answered before";
  EXPECT_THAT(result.failure().message(), HasSubstr("more than the 1048576 bytes of memory"));
  EXPECT_TRUE(result.wants_replacement());
}

TEST_F(CompilerTest, AProcessThatKeepsTooMuchMemoryAsksForAnotherAfterItsCompile) {
  options_.memory_bytes_max = ResidentBytes() + (uint64_t{64} << 20);
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  Send(Request(1, kDouble, 1));
  EXPECT_FALSE(WaitResult(1).has_failure());
  EXPECT_TRUE(WaitResult(0).wants_replacement());
}

TEST_F(CompilerTest, ItIsConfinedBeforeItTakesAProgramOrEnds) {
  options_.confine = [] { return absl::InternalError("the kernel refused"); };
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  EXPECT_EQ(WaitRunEnded(), absl::InternalError("the kernel refused"));
}

TEST_F(CompilerTest, ARefusedHelloEndsIt) {
  *reply_.mutable_failure() =
      wire::MakeFailure(absl::StatusCode::kFailedPrecondition, "another version");
  Listen();
  Start();
  absl::Status status = WaitRunEnded();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(status.message(), "another version");
}

TEST_F(CompilerTest, TheEndOfTheHeadEndsIt) {
  Listen();
  Start();
  ASSERT_TRUE(WaitHello());
  listener_.reset();
  EXPECT_FALSE(WaitRunEnded().ok());
}

TEST_F(CompilerTest, NoHeadIsUnavailableWithinTheLimit) {
  options_.connect_limit = std::chrono::milliseconds(200);
  Start();
  EXPECT_EQ(WaitRunEnded().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gangway::compiler
