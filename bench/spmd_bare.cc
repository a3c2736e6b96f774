// Bare FFI handlers under PJRT, without a control plane: what the scalar program of bench/spmd.py can reach on this
// plugin. Each process drives its devices itself, a thread each; a handler is a barrier in memory that all processes
// share, where the last one to arrive adds up, in the order of the positions. Likewise chains of a program that only
// adds a constant 1 (chain_cases.h), without a handler.
//
//   spmd_bare FILE NUMBER PROCESSES DEVICES
//
// FILE is shared by the processes, of 1 MiB, zero at the start. A failure prints its status and ends the program; the
// other processes then wait until they are killed.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/chain_cases.h"
#include "bench/commands.h"
#include "bench/spmd_scalar.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/package.h"
#include "gangway/device/device.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::bench {
namespace {

namespace ffi = ::xla::ffi;

constexpr int kPositionsMax = 64;
constexpr int kLooks = 200;  // at the memory, before a thread sleeps

// Two of each, in turns: a device that is a generation ahead writes the other one.
struct Meeting {
  std::array<std::array<float, kPositionsMax>, 2> operands;
  std::array<float, 2> sums;
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;  // that has ended; a futex
};

struct Process {
  Meeting* meeting = nullptr;
  int first = 0;                                      // its first position
  int positions = 0;                                  // of all processes
  std::array<uint32_t, kPositionsMax> generations{};  // that the device has begun, by its ordinal
};

Process& Self() {
  static Process self;
  return self;
}

void WaitFor(std::atomic<uint32_t>& word, uint32_t generation) {
  for (int i = 0; i < kLooks; ++i) {
    if (word.load(std::memory_order_acquire) == generation) return;
  }
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == generation) return;
    syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

ffi::Error AllReduce(int32_t device, ffi::BufferR0<ffi::F32> in,
                     ffi::Result<ffi::BufferR0<ffi::F32>> out) {
  Process& self = Self();
  Meeting& meeting = *self.meeting;
  const uint32_t generation = ++self.generations[device];
  auto& operands = meeting.operands[generation % 2];
  operands[self.first + device] = *in.typed_data();
  const auto count = static_cast<uint32_t>(self.positions);
  if (meeting.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    float sum = operands[0];
    for (int i = 1; i < self.positions; ++i) sum += operands[i];
    meeting.sums[generation % 2] = sum;
    meeting.arrived.store(0, std::memory_order_relaxed);
    meeting.generation.store(generation, std::memory_order_release);
    syscall(SYS_futex, &meeting.generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  } else {
    WaitFor(meeting.generation, generation);
  }
  *out->typed_data() = meeting.sums[generation % 2];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(AllReduceHandler, AllReduce,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Arg<ffi::BufferR0<ffi::F32>>()
                                  .Ret<ffi::BufferR0<ffi::F32>>());

[[noreturn]] void Fail(const std::string& what, const absl::Status& status) {
  std::cerr << what << ": " << status.ToString() << "\n";
  std::_Exit(1);
}

template <typename T>
T Get(const std::string& what, absl::StatusOr<T> value) {
  if (!value.ok()) Fail(what, value.status());
  return *std::move(value);
}

// Of two arguments, as the scalar program.
constexpr char kAddOne[] = R"(module @add_one {
  func.func public @main(%x: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %y = stablehlo.add %x, %one : tensor<f32>
    return %y : tensor<f32>
  }
})";

enum class Step { kScalar, kScalarFused, kAddOne };

// A thread for each device, because the plugin runs a small program in the thread that executes it.
class Driver {
 public:
  explicit Driver(int devices) : devices_(devices), start_(devices + 1), end_(devices + 1) {
    backend_ = Get("open", device::OpenPjrt({.plugin_path = SourcePath(GANGWAY_BENCH_PJRT_PLUGIN),
                                             .device_count = devices,
                                             .nproc = devices + 3}));
    const std::vector<device::FfiHandler> handlers = {
        {"bare_all_reduce", reinterpret_cast<void*>(AllReduceHandler)}};
    if (absl::Status status = backend_->RegisterFfiHandlers(handlers); !status.ok())
      Fail("register", status);
    for (const Step step : {Step::kScalar, Step::kScalarFused, Step::kAddOne})
      executables_[static_cast<size_t>(step)] = Compile(Text(step));
    for (int i = 0; i < devices; ++i) {
      biases_.push_back(Put(i, Bias(Self().first + i, Self().positions)));
      threads_.emplace_back([this, i] {
        for (;;) {
          start_.arrive_and_wait();
          RunOn(i);
          end_.arrive_and_wait();
        }
      });
      threads_.back().detach();  // until the process ends
    }
  }

  double Run(Step step, int calls, int awaited_every) {
    step_ = step;
    calls_ = calls;
    awaited_every_ = awaited_every;
    const auto began = std::chrono::steady_clock::now();
    start_.arrive_and_wait();
    end_.arrive_and_wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return took.count();
  }

 private:
  using BufferPtr = std::unique_ptr<device::Buffer>;

  static std::string Text(Step step) {
    if (step == Step::kAddOne) return kAddOne;
    const std::string sum =
        "%sum = stablehlo.custom_call @bare_all_reduce(%x) {api_version = 4 : i32, "
        "has_side_effect = true} : (tensor<f32>) -> tensor<f32>";
    return ScalarProgram(sum, Self().positions, step == Step::kScalarFused);
  }

  std::unique_ptr<device::Executable> Compile(const std::string& program) {
    xla::CompileOptionsProto options;
    options.set_compile_portable_executable(true);
    options.mutable_executable_build_options()->set_device_ordinal(-1);
    options.mutable_executable_build_options()->set_num_replicas(1);
    options.mutable_executable_build_options()->set_num_partitions(1);
    std::vector<int> everywhere;
    for (int i = 0; i < devices_; ++i) everywhere.push_back(i);
    return Get("compile",
               backend_->Compile({program, "mlir"}, options.SerializeAsString(), everywhere));
  }

  BufferPtr Put(int device, float value) {
    return Get("put", backend_->BufferFromHost(device, "", {.element_type = 11},
                                               std::as_bytes(std::span(&value, 1)),
                                               device::HostSemantics::kCopyDuringCall, nullptr));
  }

  static void Await(device::Buffer& buffer, float* value) {
    std::atomic<bool> ready = false;
    buffer.CopyToHost(value, sizeof(*value), [&ready](const absl::Status& status) {
      if (!status.ok()) Fail("run", status);
      ready = true;
      ready.notify_one();
    });
    ready.wait(false);
  }

  void RunOn(int device) {
    device::Executable& executable = *executables_[static_cast<size_t>(step_)];
    BufferPtr x = Put(device, 0);
    float value = 0;
    for (int i = 1; i <= calls_; ++i) {
      const std::array<device::Buffer*, 2> arguments = {x.get(), biases_[device].get()};
      auto results = Get("execute", executable.ExecuteOn(device, arguments, {}, nullptr));
      x = std::move(results[0]);
      if (i % awaited_every_ == 0 || i == calls_) Await(*x, &value);
    }
    const float made = static_cast<float>(calls_ * (step_ == Step::kScalarFused ? kChain : 1));
    const float bias = Bias(Self().first + device, Self().positions);
    const float counted = value - (step_ == Step::kAddOne ? 0 : bias - 1);
    if (std::abs(made - counted) <= 0.5F) return;
    std::cerr << made << " computations counted to " << counted << "\n";
    std::_Exit(1);
  }

  const int devices_;
  std::barrier<> start_, end_;
  std::unique_ptr<device::Backend> backend_;
  std::array<std::unique_ptr<device::Executable>, 3> executables_;  // by step
  std::vector<BufferPtr> biases_;
  std::vector<std::thread> threads_;
  // Of the run that the threads make; the barriers order it.
  Step step_ = Step::kScalar;
  int calls_ = 0, awaited_every_ = 1;
};

Meeting* MapMeeting(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const memory =
      file < 0 ? MAP_FAILED
               : mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) Fail(path, absl::ErrnoToStatus(errno, "cannot be mapped"));
  return static_cast<Meeting*>(memory);
}

}  // namespace
}  // namespace gangway::bench

int main(int argc, char** argv) {
  using gangway::bench::Self;
  using gangway::bench::Step;
  if (argc != 5) {
    std::cerr << "usage: spmd_bare FILE NUMBER PROCESSES DEVICES\n";
    return 2;
  }
  const int devices = std::atoi(argv[4]);
  Self().meeting = gangway::bench::MapMeeting(argv[1]);
  Self().first = std::atoi(argv[2]) * devices;
  Self().positions = std::atoi(argv[3]) * devices;
  gangway::bench::Driver driver(devices);
  const auto run = [&driver](bool fused, int calls, int awaited_every) {
    return driver.Run(fused ? Step::kScalarFused : Step::kScalar, calls, awaited_every);
  };
  const int status = gangway::bench::ServeCommands([&](const std::string& name, int count) {
    const auto chain = gangway::bench::ParseChainCase(name);
    if (!chain) return gangway::bench::RunScalar(name, count, run);
    const double seconds =
        driver.Run(Step::kAddOne, count, chain->is_awaited ? chain->nodes : count);
    return std::optional(gangway::bench::Ran{seconds});
  });
  std::_Exit(status);  // its threads wait for ever
}
