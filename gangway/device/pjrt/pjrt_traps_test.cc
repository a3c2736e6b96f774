// Behaviour of the XLA CPU plugin that a runtime must plan for. Each test pins one such behaviour:
// it fails when a newer plugin changes that, and the rule built on it can then be revisited
// (docs/internals/probes.md).
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"

// The plugin leaks the error of a rejected FFI registration instead of returning it.
extern "C" const char* __lsan_default_suppressions() { return "leak:pjrt_c_api_cpu_plugin\n"; }

namespace gangway::device {
namespace {

std::unique_ptr<Backend> Open(int devices) {
  auto backend = OpenTestPlugin(devices);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  return backend.ok() ? *std::move(backend) : nullptr;
}

std::unique_ptr<Executable> Compile(Backend& backend, const TestProgram& program) {
  auto executable = backend.Compile({program.code, program.format}, program.compile_options, {});
  EXPECT_TRUE(executable.ok()) << executable.status().ToString();
  return executable.ok() ? *std::move(executable) : nullptr;
}

// --- At most 32 executes in flight ---

TEST(PjrtTraps, The33rdExecuteInFlightBlocksItsCaller) {
  auto backend = Open(2);
  auto unary = Compile(*backend, UnaryProgram());
  ASSERT_EQ(backend->capabilities().inflight_max, 32);
  auto placeholder = backend->CreatePlaceholder(0, F32({4}));
  ASSERT_TRUE(placeholder.ok());
  Buffer* argument = placeholder->buffer.get();
  BufferList outputs;
  for (int i = 0; i < 32; ++i) {
    auto output = unary->ExecuteOn(0, {&argument, 1}, {}, nullptr);
    ASSERT_TRUE(output.ok());
    outputs.push_back(std::move((*output)[0]));
  }
  Waiter returned;
  std::thread thread([&, argument] {
    auto output = unary->ExecuteOn(0, {&argument, 1}, {}, nullptr);
    returned.Callback()(output.status());
  });
  EXPECT_EQ(returned.Wait(std::chrono::milliseconds(300)).code(),
            absl::StatusCode::kDeadlineExceeded)
      << "the limit of 32 is gone or larger: Capabilities::inflight_max can be raised";
  const std::vector<float> values = {1, 2, 3, 4};
  EXPECT_TRUE(placeholder->filler->Fill(Bytes(values), nullptr).ok());
  EXPECT_TRUE(returned.Wait().ok());
  thread.join();
  for (auto& output : outputs) EXPECT_EQ(*ReadFloats(*output), (std::vector<float>{2, 3, 4, 5}));
}

// --- FFI handlers; small programs run in their caller's thread ---

std::thread::id g_handler_thread;
int64_t g_handler_run_id = 0;

xla::ffi::Error RecordThread(xla::ffi::RunId run_id, xla::ffi::AnyBuffer in,
                             xla::ffi::Result<xla::ffi::AnyBuffer> out) {
  g_handler_thread = std::this_thread::get_id();
  g_handler_run_id = run_id.run_id;
  std::memcpy(out->untyped_data(), in.untyped_data(), in.size_bytes());
  return xla::ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(RecordThreadHandler, RecordThread,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::RunId>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

// Claims to be built for an FFI version that no plugin knows.
XLA_FFI_Error* HandlerOfAnotherVersion(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr &&
      frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
    extension->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    extension->metadata->api_version.minor_version = 99;
  }
  return nullptr;
}

TestProgram CallProgram(const std::string& target) {
  return Mlir(absl::Substitute(R"(func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.custom_call @$0(%x) {api_version = 4 : i32, backend_config = {}}
        : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  })",
                               target));
}

TEST(PjrtTraps, SmallProgramsRunInTheThreadThatCallsExecute) {
  auto backend = Open(2);
  GANGWAY_ASSERT_OK(backend->RegisterFfiHandlers(std::vector<FfiHandler>{
      {"gangway_test_thread", reinterpret_cast<void*>(&RecordThreadHandler)}}));
  auto executable = Compile(*backend, CallProgram("gangway_test_thread"));
  ASSERT_NE(executable, nullptr);
  auto argument = MakeBuffer(*backend, 0, {1, 2, 3, 4});
  Buffer* pointer = argument->get();
  ExecuteOptions options;
  options.launch_id = 4711;
  g_handler_thread = {};
  auto outputs = executable->ExecuteOn(0, {&pointer, 1}, options, nullptr);
  ASSERT_TRUE(outputs.ok());
  EXPECT_TRUE(ReadFloats(*(*outputs)[0]).ok());
  EXPECT_EQ(g_handler_thread, std::this_thread::get_id());
  EXPECT_EQ(g_handler_run_id, 4711) << "handlers identify their gang by the launch id";
}

TEST(PjrtTraps, HandlerThatThePluginSilentlyRefusesIsReported) {
  auto backend = Open(2);
  absl::Status status = backend->RegisterFfiHandlers(std::vector<FfiHandler>{
      {"gangway_test_good", reinterpret_cast<void*>(&RecordThreadHandler)},
      {"gangway_test_other_version", reinterpret_cast<void*>(&HandlerOfAnotherVersion)}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_NE(std::string(status.message()).find("gangway_test_other_version"), std::string::npos)
      << status.ToString();
  EXPECT_NE(std::string(status.message()).find("FFI header"), std::string::npos)
      << status.ToString();
}

TEST(PjrtTraps, AGroupThatThePluginRefusesDoesNotTakeTheOthersAlong) {
  auto backend = Open(2);
  OfferHandlers(*backend,
                std::vector<HandlerGroup>{
                    {"of another version",
                     {{"gangway_test_refused", reinterpret_cast<void*>(&HandlerOfAnotherVersion)}}},
                    {"with a copy",
                     {{"gangway_test_offered", reinterpret_cast<void*>(&RecordThreadHandler)}}},
                    {"on another platform",
                     {{"gangway_test_gpu", reinterpret_cast<void*>(&RecordThreadHandler),
                       /*device_memory=*/true}}}});
  EXPECT_NE(Compile(*backend, CallProgram("gangway_test_offered")), nullptr);
  for (const char* target : {"gangway_test_refused", "gangway_test_gpu"}) {
    const TestProgram program = CallProgram(target);
    EXPECT_FALSE(backend->Compile({program.code, program.format}, program.compile_options, {}).ok())
        << target;
  }
}

TEST(PjrtTraps, HandlersRegisterOncePerNameAndAddress) {
  auto backend = Open(2);
  const std::vector<FfiHandler> handler = {
      {"gangway_test_once", reinterpret_cast<void*>(&RecordThreadHandler)}};
  GANGWAY_ASSERT_OK(backend->RegisterFfiHandlers(handler));
  GANGWAY_ASSERT_OK(backend->RegisterFfiHandlers(handler));
  absl::Status status = backend->RegisterFfiHandlers(std::vector<FfiHandler>{
      {"gangway_test_once", reinterpret_cast<void*>(&HandlerOfAnotherVersion)}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status.ToString();
  status =
      backend->RegisterFfiHandlers(std::vector<FfiHandler>{{"bad \"name", handler[0].handler}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status.ToString();
}

// --- XLA's own collectives ---

// Shortens XLA's own limit on a stuck collective, which is 40 s by default.
constexpr char kShortTimeouts[] =
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=1 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=2";

// Runs one gang in which the shards in `poisoned` fail and the others fill. Returns the final
// status of each member.
std::vector<absl::Status> RunGangWithPoison(Backend& backend, Executable& gang,
                                            const std::set<int>& poisoned) {
  const int count = static_cast<int>(gang.devices().size());
  std::vector<Waiter> complete(count);
  std::vector<Placeholder> arguments;
  for (int i = 0; i < count; ++i) arguments.push_back(*backend.CreatePlaceholder(i, F32({1})));
  std::vector<BufferList> outputs(count);
  OnThreads(count, [&](int i) {
    Buffer* argument = arguments[i].buffer.get();
    auto result = gang.ExecuteOn(i, {&argument, 1}, {.launch_id = 1}, complete[i].Callback());
    if (result.ok()) outputs[i] = *std::move(result);
  });
  const std::vector<float> one = {1};
  OnThreads(count, [&](int i) {
    if (poisoned.contains(i))
      (void)arguments[i].filler->Fail(absl::DataLossError("shard lost"));
    else
      (void)arguments[i].filler->Fill(Bytes(one), nullptr);
  });
  std::vector<absl::Status> statuses;
  for (Waiter& waiter : complete) statuses.push_back(waiter.Wait());
  return statuses;
}

void PoisonOneShardOfEight() {
  setenv("XLA_FLAGS", kShortTimeouts, 1);
  auto backend = OpenTestPlugin(8);
  if (!backend.ok()) _exit(3);
  const TestProgram program = GangProgram(8);
  auto gang = (*backend)->Compile({program.code, program.format}, program.compile_options, {});
  if (!gang.ok()) _exit(4);
  RunGangWithPoison(**backend, **gang, {2});
  _exit(0);  // no member hung
}

TEST(PjrtTrapsDeathTest, OneLonePoisonedShardBeforeACollectiveAbortsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(PoisonOneShardOfEight(), testing::KilledBySignal(SIGABRT), "rendezvous");
}

TEST(PjrtTraps, WhenAllShardsArePoisonedTogetherTheProcessLives) {
  auto backend = Open(8);
  auto gang = Compile(*backend, GangProgram(8));
  for (const absl::Status& status : RunGangWithPoison(*backend, *gang, {0, 1, 2, 3, 4, 5, 6, 7})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status.ToString();
  }
  for (const absl::Status& status : RunGangWithPoison(*backend, *gang, {}))
    EXPECT_TRUE(status.ok());
}

// Runs two programs with collectives at once on all eight devices. Both are enqueued on
// placeholders in the same order on every device, so they run on the plugin's pool once these fill,
// not in the threads that call ExecuteOn. True: all results are right.
bool TwoProgramsAtOnce(Backend& backend) {
  auto first = Compile(backend, GangProgram(8));
  auto second = Compile(backend, GangProgram(8));
  constexpr int kRounds = 8;  // 16 in flight per device, below the limit of 32
  std::vector<Placeholder> arguments;
  for (int device = 0; device < 8; ++device)
    arguments.push_back(*backend.CreatePlaceholder(device, F32({1})));
  std::vector<Waiter> complete(size_t{8} * 2 * kRounds);
  std::vector<BufferList> outputs(8);
  OnThreads(8, [&](int device) {
    Buffer* argument = arguments[device].buffer.get();
    for (int i = 0; i < 2 * kRounds; ++i) {
      ExecuteOptions options;
      options.launch_id = i + 1;
      auto result = (i % 2 == 0 ? first : second)
                        ->ExecuteOn(device, {&argument, 1}, options,
                                    complete[device * 2 * kRounds + i].Callback());
      if (result.ok()) outputs[device].push_back(std::move((*result)[0]));
    }
  });
  const std::vector<float> one = {1};
  OnThreads(8, [&](int device) { (void)arguments[device].filler->Fill(Bytes(one), nullptr); });
  bool right = true;
  for (Waiter& waiter : complete) right = waiter.Wait().ok() && right;
  for (int device = 0; device < 8; ++device) {
    right = right && outputs[device].size() == size_t{2} * kRounds;
    for (auto& output : outputs[device]) {
      right = right && *ReadFloats(*output) ==
                           std::vector<float>{9.0f + 1000.0f * static_cast<float>(device)};
    }
  }
  return right;
}

TEST(PjrtTraps, TwoProgramsWithCollectivesFinishWithThePinnedPool) {
  auto backend = Open(8);
  ASSERT_STREQ(getenv("NPROC"), "64");
  EXPECT_TRUE(TwoProgramsAtOnce(*backend));
}

// Devices 0-3 run A then B, devices 4-7 B then A; each gang has a launch id of its own.
void OppositeOrdersOnTwoHalves() {
  setenv("XLA_FLAGS", kShortTimeouts, 1);
  auto backend = OpenTestPlugin(8);
  if (!backend.ok()) _exit(3);
  auto a = Compile(**backend, GangProgram(8));
  auto b = Compile(**backend, GangProgram(8));
  OnThreads(8, [&](int device) {
    for (bool run_a : {device < 4, device >= 4}) {
      auto argument = MakeBuffer(**backend, device, {1});
      Buffer* pointer = argument->get();
      ExecuteOptions options;
      options.launch_id = run_a ? 1 : 2;
      auto outputs = (run_a ? a : b)->ExecuteOn(device, {&pointer, 1}, options, nullptr);
      if (outputs.ok()) (void)ReadFloats(*(*outputs)[0]);
    }
  });
  _exit(0);  // no member hung
}

TEST(PjrtTrapsDeathTest, GS1_GangsInDifferentOrdersOnTheDevicesAbortTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(OppositeOrdersOnTwoHalves(), testing::KilledBySignal(SIGABRT), "rendezvous");
}

// The plugin finds the members of a launch by its id: under one id, members of two programs wait for one another
// forever, or with equal collectives their sums mix. Under 0, it makes no launch of several members.
TEST(PjrtTraps, ALaunchIdThatIsInFlightOrZeroIsRefused) {
  auto backend = Open(8);
  auto a = Compile(*backend, GangProgram(8));
  auto b = Compile(*backend, GangProgram(8));
  std::vector<std::unique_ptr<Buffer>> arguments;
  for (int device = 0; device < 8; ++device)
    arguments.push_back(*MakeBuffer(*backend, device, {1.0f}));
  auto placeholder = backend->CreatePlaceholder(0, F32({1}));
  ASSERT_TRUE(placeholder.ok());
  auto execute = [&](Executable& gang, int device, int launch_id) {
    Buffer* argument = device == 0 ? placeholder->buffer.get() : arguments[device].get();
    return gang.ExecuteOn(device, {&argument, 1}, {.launch_id = launch_id}, nullptr);
  };
  EXPECT_EQ(execute(*a, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  auto first = execute(*a, 0, 7);  // waits for its argument
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(execute(*a, 0, 7).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(execute(*b, 4, 7).status().code(), absl::StatusCode::kFailedPrecondition);
  OnThreads(8, [&](int device) {
    if (device > 0) {
      auto outputs = execute(*a, device, 7);
      EXPECT_TRUE(outputs.ok() && ReadFloats(*(*outputs)[0]).ok()) << outputs.status();
    } else {
      const std::vector<float> one = {1};
      EXPECT_TRUE(placeholder->filler->Fill(Bytes(one), nullptr).ok());
    }
  });
  EXPECT_EQ(*ReadFloats(*(*first)[0]), std::vector<float>{9});
}

// A gang on devices 4-7, all of whose arguments are there, does not begin before one on 0-3 that arrived first and
// waits for its arguments.
TEST(PjrtTraps, GangsOnDisjointDevicesTakeTurns) {
  auto backend = Open(8);
  ASSERT_TRUE(backend->capabilities().collectives.take_turns);
  const TestProgram program = GangProgram(4);
  std::vector<std::unique_ptr<Executable>> gangs;
  for (const std::vector<int>& devices : {std::vector<int>{0, 1, 2, 3}, {4, 5, 6, 7}}) {
    auto gang = backend->Compile({program.code, program.format}, program.compile_options, devices);
    ASSERT_TRUE(gang.ok()) << gang.status();
    gangs.push_back(*std::move(gang));
  }
  std::vector<Placeholder> arguments;
  for (int device = 0; device < 8; ++device)
    arguments.push_back(*backend->CreatePlaceholder(device, F32({1})));
  std::vector<Waiter> complete(8);
  std::vector<BufferList> outputs(8);
  const std::vector<float> one = {1};
  auto run = [&](int device) {
    Buffer* argument = arguments[device].buffer.get();
    auto result = gangs[device / 4]->ExecuteOn(
        device, {&argument, 1}, {.launch_id = 1 + device / 4}, complete[device].Callback());
    if (result.ok()) outputs[device] = *std::move(result);
  };
  OnThreads(4, run);
  OnThreads(4, [&](int i) { run(4 + i); });
  OnThreads(4, [&](int i) { (void)arguments[4 + i].filler->Fill(Bytes(one), nullptr); });
  EXPECT_EQ(complete[4].Wait(std::chrono::milliseconds(300)).code(),
            absl::StatusCode::kDeadlineExceeded)
      << "gangs run side by side again: Capabilities::Collectives::take_turns can go";
  OnThreads(4, [&](int i) { (void)arguments[i].filler->Fill(Bytes(one), nullptr); });
  for (Waiter& waiter : complete) EXPECT_TRUE(waiter.Wait().ok());
}

// --- Compiling ---

// Options like those of JAX, which select YNNPACK fusions.
std::string WithYnnFusions(const std::string& options) {
  std::string debug;
  AppendVarint(debug, 31 << 3);  // xla_backend_optimization_level
  AppendVarint(debug, 3);
  AppendVarint(debug, 323 << 3);  // xla_cpu_parallel_codegen_split_count
  AppendVarint(debug, 32);
  AppendVarint(debug, 422 << 3 | 2);  // xla_cpu_experimental_ynn_fusion_type
  debug += {2, 3, 4};                 // two kinds: of reductions, of single products
  std::string build = "\x1a";
  AppendVarint(build, debug.size());
  build += debug;
  std::string merged = "\x1a";  // executable_build_options once more
  AppendVarint(merged, build.size());
  return options + merged + build;
}

TEST(PjrtTraps, ProgramsAreCompiledWithoutTheFusionsThatDevicesShareWithoutALock) {
  auto backend = Open(1);
  TestProgram maximum = Mlir(R"(func.func public @main(%x: tensor<256x256xf32>) -> tensor<256xf32> {
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %y = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1]
      : (tensor<256x256xf32>, tensor<f32>) -> tensor<256xf32>
    return %y : tensor<256xf32>
  })");
  maximum.compile_options = WithYnnFusions(maximum.compile_options);
  auto executable = Compile(*backend, maximum);
  auto text = executable->OptimizedProgram();
  GANGWAY_ASSERT_OK(text.status());
  EXPECT_NE(text->find("reduce"), std::string::npos);
  EXPECT_EQ(text->find("ynn_fusion"), std::string::npos);
}

void CopyAnEmptyArrayToAnotherOrder() {
  auto backend = OpenTestPlugin(1);
  if (!backend.ok() ||
      !(*backend)
           ->RegisterFfiHandlers(std::vector<FfiHandler>{
               {"gangway_test_empty", reinterpret_cast<void*>(&RecordThreadHandler)}})
           .ok())
    _exit(3);
  const TestProgram program = Mlir(
      R"(func.func public @main(%x: tensor<0x0xf32>) -> (tensor<0x0xf32>, tensor<i32>) {
    %y:2 = stablehlo.custom_call @gangway_test_empty(%x) {api_version = 4 : i32, backend_config = {},
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[]> : tensor<0xindex>]}
        : (tensor<0x0xf32>) -> (tensor<0x0xf32>, tensor<i32>)
    return %y#0, %y#1 : tensor<0x0xf32>, tensor<i32>
  })");
  (void)(*backend)->Compile({program.code, program.format}, program.compile_options, {});
  _exit(0);
}

// A compiler that ends so is replaced, and the program quarantined (docs/internals/compiler.md).
TEST(PjrtTrapsDeathTest, ACustomCallOnAnEmptyArrayInAnotherOrderEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto is_fatal = [](int status) {  // AddressSanitizer turns the signal into an exit
    return testing::KilledBySignal(SIGFPE)(status) || testing::ExitedWithCode(1)(status);
  };
  EXPECT_EXIT(CopyAnEmptyArrayToAnotherOrder(), is_fatal, "");
}

// --- Zero-copy buffers ---

TEST(PjrtTraps, DonatingAZeroCopyBufferLeavesTheCallersMemoryAlone) {
  auto backend = Open(2);
  auto donating = Compile(*backend, DonatingProgram());
  alignas(64) float values[4] = {1, 2, 3, 4};
  Waiter free;
  auto buffer = backend->BufferFromHost(0, "", F32({4}), std::as_bytes(std::span(values)),
                                        HostSemantics::kZeroCopy, free.Callback());
  ASSERT_TRUE(buffer.ok());
  Buffer* argument = buffer->get();
  auto outputs = donating->ExecuteOn(0, {&argument, 1}, {}, nullptr);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ(*ReadFloats(*(*outputs)[0]), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(values[1], 2);
  buffer->reset();
  outputs->clear();
  GANGWAY_ASSERT_OK(free.Wait());
}

}  // namespace
}  // namespace gangway::device
