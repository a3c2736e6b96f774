// Bare FFI handlers under PJRT, without a control plane: what the scalar program of bench/spmd.py can reach on this
// plugin. Each process drives its devices itself, a thread each; a handler is a barrier in memory that all processes
// share, where the last one to arrive adds up, in the order of the positions.
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
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
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
    one_ = Compile(false);
    fused_ = Compile(true);
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

  double Run(bool fused, int calls, int awaited_every) {
    fused_now_ = fused;
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

  std::unique_ptr<device::Executable> Compile(bool fused) {
    const std::string sum =
        "%sum = stablehlo.custom_call @bare_all_reduce(%x) {api_version = 4 : i32, "
        "has_side_effect = true} : (tensor<f32>) -> tensor<f32>";
    const std::string program = ScalarProgram(sum, Self().positions, fused);
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
    const device::Executable& executable = fused_now_ ? *fused_ : *one_;
    BufferPtr x = Put(device, 0);
    float value = 0;
    for (int i = 1; i <= calls_; ++i) {
      const std::array<device::Buffer*, 2> arguments = {x.get(), biases_[device].get()};
      auto results = Get(
          "execute",
          const_cast<device::Executable&>(executable).ExecuteOn(device, arguments, {}, nullptr));
      x = std::move(results[0]);
      if (i % awaited_every_ == 0) Await(*x, &value);
    }
    const float made = static_cast<float>(calls_ * (fused_now_ ? kChain : 1));
    const float counted = value - Bias(Self().first + device, Self().positions) + 1;
    if (std::abs(made - counted) <= 0.5F) return;
    std::cerr << made << " computations counted to " << counted << "\n";
    std::_Exit(1);
  }

  const int devices_;
  std::barrier<> start_, end_;
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<device::Executable> one_, fused_;
  std::vector<BufferPtr> biases_;
  std::vector<std::thread> threads_;
  // Of the run that the threads make; the barriers order it.
  bool fused_now_ = false;
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
    return driver.Run(fused, calls, awaited_every);
  };
  const int status = gangway::bench::ServeCommands([&run](const std::string& name, int count) {
    return gangway::bench::RunScalar(name, count, run);
  });
  std::_Exit(status);  // its threads wait for ever
}
