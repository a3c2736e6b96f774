// Tests which launches a real worker's loop runs by itself, on the XLA CPU plugin.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "gangway/device/pjrt/pjrt_test_programs.h"
#include "gangway/device/pjrt/serialized_loops.h"
#include "gangway/worker/service/device/short_launches.h"
#include "gangway/worker/service/worker_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;

const Tensor kFour{{4}, 16};
constexpr int kRuns = 100;

// Counts down from its argument, in as many rounds of a loop.
device::TestProgram Loop() {
  return device::Mlir(R"(func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.while(%i = %x) : tensor<4xf32>
      cond {
        %sum = stablehlo.reduce(%i init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        %more = stablehlo.compare GT, %sum, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %next = stablehlo.subtract %i, %one : tensor<4xf32>
        stablehlo.return %next : tensor<4xf32>
      }
    return %y : tensor<4xf32>
  })");
}

// Works in one of its branches only.
device::TestProgram Branches() {
  return device::Mlir(R"(func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %more = stablehlo.compare GT, %sum, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %y = "stablehlo.if"(%more) ({
      %tanh = stablehlo.tanh %x : tensor<4xf32>
      %sine = stablehlo.sine %tanh : tensor<4xf32>
      stablehlo.return %sine : tensor<4xf32>
    }, {
      stablehlo.return %x : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  })");
}

// What the executes of a runtime share.
struct Executes {
  std::atomic<int> stall_ms = 0;  // the next one takes so long
  std::atomic<int> on_loop = 0;   // were called on an event loop
  std::atomic<int> elsewhere = 0;
};

// The real runtime, whose executes are counted and can be made to take long.
class SlowExecutable final : public device::Executable {
 public:
  SlowExecutable(std::unique_ptr<device::Executable> real, Executes& executes)
      : real_(std::move(real)), executes_(executes) {}
  std::string_view name() const override { return real_->name(); }
  int num_replicas() const override { return real_->num_replicas(); }
  int num_partitions() const override { return real_->num_partitions(); }
  std::span<const int> devices() const override { return real_->devices(); }
  std::span<const device::ArraySpec> outputs() const override { return real_->outputs(); }
  absl::StatusOr<device::MemoryStats> GetMemoryStats() const override {
    return real_->GetMemoryStats();
  }
  absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const override {
    return real_->GetCostAnalysis();
  }
  absl::StatusOr<std::string> Serialize() const override { return real_->Serialize(); }
  absl::StatusOr<std::string> OptimizedProgram() const override {
    return real_->OptimizedProgram();
  }
  absl::StatusOr<std::vector<std::unique_ptr<device::Buffer>>> ExecuteOn(
      int device, std::span<device::Buffer* const> arguments, const device::ExecuteOptions& options,
      device::StatusCallback on_complete) override {
    ++(EventLoop::Current() != nullptr ? executes_.on_loop : executes_.elsewhere);
    if (const int stall_ms = executes_.stall_ms.exchange(0))
      std::this_thread::sleep_for(std::chrono::milliseconds(stall_ms));
    return real_->ExecuteOn(device, arguments, options, std::move(on_complete));
  }

 private:
  const std::unique_ptr<device::Executable> real_;
  Executes& executes_;
};

class SlowBackend final : public device::Backend {
 public:
  SlowBackend(std::unique_ptr<device::Backend> real, Executes& executes)
      : real_(std::move(real)), executes_(executes) {}
  const device::Capabilities& capabilities() const override { return real_->capabilities(); }
  std::span<const device::DeviceInfo> devices() const override { return real_->devices(); }
  absl::StatusOr<std::unique_ptr<device::Executable>> Compile(
      const device::Program& program, std::string_view options,
      std::span<const int> devices) override {
    return real_->Compile(program, options, devices);
  }
  absl::StatusOr<std::unique_ptr<device::Executable>> Load(std::string_view serialized,
                                                           std::span<const int> devices) override {
    auto loaded = real_->Load(serialized, devices);
    if (!loaded.ok()) return loaded.status();
    return std::make_unique<SlowExecutable>(*std::move(loaded), executes_);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> BufferFromHost(
      int device, std::string_view memory_kind, const device::ArraySpec& spec,
      std::span<const std::byte> bytes, device::HostSemantics semantics,
      device::StatusCallback on_done) override {
    return real_->BufferFromHost(device, memory_kind, spec, bytes, semantics, std::move(on_done));
  }
  absl::StatusOr<device::Placeholder> CreatePlaceholder(int device,
                                                        const device::ArraySpec& spec) override {
    return real_->CreatePlaceholder(device, spec);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> CreateErrorBuffer(int device,
                                                                    const device::ArraySpec& spec,
                                                                    absl::Status error) override {
    return real_->CreateErrorBuffer(device, spec, std::move(error));
  }
  absl::Status RegisterFfiHandlers(std::span<const device::FfiHandler> handlers) override {
    return real_->RegisterFfiHandlers(handlers);
  }

 private:
  const std::unique_ptr<device::Backend> real_;
  Executes& executes_;
};

class ShortLaunchesTest : public WorkerHarness {
 protected:
  void SetUp() override {
    // Its limit for the scheduler's silence passes while the loop runs a program.
    silence_max_ = std::chrono::seconds(2);
    Start(2,
          [this]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
            auto real = device::OpenTestPlugin(2);
            if (!real.ok()) return real.status();
            return std::make_unique<SlowBackend>(*std::move(real), executes_);
          },
          {.heartbeat_interval = std::chrono::milliseconds(50),
           .stuck_after = std::chrono::milliseconds(200),
           .loop_runs_max = loop_runs_max_});
    OpenStream();
  }

  std::string Compile(const device::TestProgram& program) {
    static device::Backend* const compiler = (*device::OpenTestPlugin(2)).release();
    auto executable = compiler->Compile({program.code, program.format}, program.compile_options,
                                        std::vector<int>{0});
    EXPECT_TRUE(executable.ok()) << executable.status();
    return executable.ok() ? *(*executable)->Serialize() : "";
  }

  void CompileAndLoad(const device::TestProgram& program) {
    LoadExecutable(1, "test", Compile(program), 1, {kFour});
    ASSERT_EQ(WaitLoaded(1).code(), 0) << loaded_[1].DebugString();
    Upload(next_++, 10, kFour, {Floats({1, 2, 3, 4})});
  }

  // One after the other, each awaited. Their results are the storages of their numbers.
  void Call(int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t ordinal = Launch();
      EXPECT_EQ(WaitDone(ordinal).code(), 0);
      Free({1000 + ordinal});
    }
  }
  uint64_t Launch() {
    const uint64_t ordinal = next_++;
    LaunchNode(ordinal, 1, {10}, {1000 + ordinal}, 1);
    Release({ordinal});
    return ordinal;
  }

  // Whether, in time, the loop executes kRuns calls in a row. On a busy machine a run may take long now and then, and
  // the next ones go to the device's thread.
  bool GetsShort() {
    for (int tries = 0; tries < 50; ++tries) {
      const int before = executes_.elsewhere;
      Call(kRuns);
      if (executes_.elsewhere == before) return true;
    }
    return false;
  }

  std::chrono::milliseconds loop_runs_max_{10'000};
  Executes executes_;
  uint64_t next_ = 1;
};

class HeldLoopTest : public ShortLaunchesTest {
 protected:
  HeldLoopTest() { loop_runs_max_ = std::chrono::milliseconds(300); }
};

TEST_F(ShortLaunchesTest, InSteadyStateTheLoopExecutesThem) {
  CompileAndLoad(device::UnaryProgram());
  Call(kShortRunsFirst);
  EXPECT_EQ(executes_.on_loop, 0) << "too little is known of it";
  EXPECT_TRUE(GetsShort());
  const uint64_t last = Launch();
  FetchNode(next_, 1000 + last, kFour, 1);
  Release({next_});
  EXPECT_THAT(AsFloats(ReceiveFetch(next_, 1).bytes[0]), ElementsAre(2, 3, 4, 5));
}

TEST_F(ShortLaunchesTest, AProgramWithALoopOrBranchesRunsOnItsDevicesThread) {
  EXPECT_TRUE(device::MayVaryInTime(Compile(Loop())));
  EXPECT_TRUE(device::MayVaryInTime(Compile(Branches())));
  EXPECT_FALSE(device::MayVaryInTime(Compile(device::UnaryProgram())));
  CompileAndLoad(Loop());
  Call(kRuns);
  EXPECT_EQ(executes_.on_loop, 0);
}

TEST_F(ShortLaunchesTest, ASurpriseIsReportedAsStuckAndTheNextRunIsNotTheLoops) {
  CompileAndLoad(device::UnaryProgram());
  ASSERT_TRUE(GetsShort());
  executes_.stall_ms = 2'800;
  const uint64_t stalled = Launch();
  ASSERT_TRUE(control_inbox_.Until([stalled](wire::Frame& frame) {
    const wire::Heartbeat& beat = frame.heartbeat();
    return beat.stuck_size() == 1 && beat.stuck(0).device() == 0 && beat.stuck(0).gang() == stalled;
  }));
  EXPECT_EQ(WaitDone(stalled).code(), 0) << "the worker took its own silence for the scheduler's";
  const int before = executes_.elsewhere;
  Call(1);
  EXPECT_EQ(executes_.elsewhere, before + 1);
}

// The loop hears nothing meant for others as long as it runs a program, so the worker ends, and says why.
TEST_F(HeldLoopTest, AProgramThatHoldsTheLoopEndsTheWorker_TM1) {
  CompileAndLoad(device::UnaryProgram());
  ASSERT_TRUE(GetsShort());
  executes_.stall_ms = 1'000;
  Launch();
  EXPECT_TRUE(control_inbox_.Until([](wire::Frame& frame) {
    const auto& reports = frame.report_batch().reports();
    return std::ranges::any_of(reports, [](const wire::Report& report) {
      return report.ending().worker() == "island0/worker0" &&
             report.ending().message().find("has held the worker's event loop for 300 ms") !=
                 std::string::npos;
    });
  }));
}

}  // namespace
}  // namespace gangway::worker
