// Simulated work through the real plugin: it takes the given time, passes its values on, and calls
// with one clock run in order.
#include "gangway/device/pjrt/simulated_work.h"

#include <chrono>
#include <cstdlib>

#include "absl/strings/substitute.h"

#include "gangway/base/clock.h"
#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/pjrt/pjrt_test_programs.h"

namespace gangway::device {
namespace {
using std::chrono::milliseconds;

TestProgram Work(int64_t microseconds) {
  return Mlir(absl::Substitute(R"(func.func public @main(%c: tensor<1xf32>, %x: tensor<4xf32>)
      -> (tensor<1xf32>, tensor<4xf32>) {
    %r:2 = stablehlo.custom_call @gangway_simulated_work(%c, %x)
        {api_version = 4 : i32, backend_config = {microseconds = $0 : i64}}
        : (tensor<1xf32>, tensor<4xf32>) -> (tensor<1xf32>, tensor<4xf32>)
    return %r#0, %r#1 : tensor<1xf32>, tensor<4xf32>
  })",
                               microseconds));
}

class SimulatedWorkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenTestPlugin(1);
    ASSERT_TRUE(opened.ok()) << opened.status();
    backend_ = *std::move(opened);
    EXPECT_TRUE(SimulatedWorkHandlers().handlers.empty());
    setenv("GANGWAY_SIMULATED_WORK", "1", 1);
    GANGWAY_ASSERT_OK(backend_->RegisterFfiHandlers(SimulatedWorkHandlers().handlers));
    unsetenv("GANGWAY_SIMULATED_WORK");
    clock_ = *MakeBuffer(*backend_, 0, {0});
    x_ = *MakeBuffer(*backend_, 0, {1, 2, 3, 4});
  }

  std::unique_ptr<Executable> Compile(const TestProgram& program) {
    auto executable =
        backend_->Compile({program.code, program.format}, program.compile_options, {});
    EXPECT_TRUE(executable.ok()) << executable.status();
    return executable.ok() ? *std::move(executable) : nullptr;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Buffer> clock_;
  std::unique_ptr<Buffer> x_;
};

TEST_F(SimulatedWorkTest, CallsOfOneClockFollowEachOther) {
  auto work = Compile(Work(30'000));
  ASSERT_NE(work, nullptr);
  const auto began = Clock::now();
  BufferList outputs;
  for (int i = 0; i < 3; ++i) {
    std::vector<Buffer*> arguments = {
        outputs.empty() ? clock_.get() : outputs[outputs.size() - 2].get(), x_.get()};
    auto more = work->ExecuteOn(0, arguments, {}, nullptr);
    ASSERT_TRUE(more.ok()) << more.status();
    for (auto& output : *more) outputs.push_back(std::move(output));
  }
  EXPECT_EQ(*ReadFloats(*outputs.back()), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_GE(Clock::now() - began, milliseconds(90));
}

TEST_F(SimulatedWorkTest, AnUnreasonableTimeIsRefused) {
  for (int64_t microseconds : {int64_t{-1}, int64_t{1} << 40}) {
    auto work = Compile(Work(microseconds));
    ASSERT_NE(work, nullptr);
    std::vector<Buffer*> arguments = {clock_.get(), x_.get()};
    auto outputs = work->ExecuteOn(0, arguments, {}, nullptr);
    absl::Status status = outputs.ok() ? ReadFloats(*(*outputs)[1]).status() : outputs.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

}  // namespace
}  // namespace gangway::device
