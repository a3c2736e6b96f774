// For tests of the compiler: the real XLA plugin with two devices, and a head that the test plays, over the in-process
// transport. Threading: the test's thread; the head's frames arrive on a loop of their own.
#ifndef GANGWAY_COMPILER_COMPILER_TEST_UTIL_H_
#define GANGWAY_COMPILER_COMPILER_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/package.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/compiler/compiler.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"
#include "gangway/xla/compile_options.h"

namespace gangway::compiler {

inline constexpr std::chrono::seconds kLimit{60};

// One backend per process, with two devices, since the plugin is costly to open.
inline device::Backend& Backend() {
  static device::Backend* backend = [] {
    device::PjrtOptions options;
    options.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
    options.device_count = 2;
    auto opened = device::OpenPjrt(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    device::OfferHandlers(
        **opened, std::vector{collective::CollectiveHandlers(), device::PositionHandlers()});
    return opened->release();  // lives as long as the process
  }();
  return *backend;
}

// As an OpenBackend.
inline absl::StatusOr<std::unique_ptr<device::Backend>> OpenPartitioner(int device_count) {
  return device::OpenPjrt({.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN),
                           .device_count = device_count,
                           .nproc = 0});
}

inline wire::CompileRequest Request(uint64_t number, std::string program, int devices) {
  wire::CompileRequest request;
  request.set_request(number);
  request.set_program(std::move(program));
  request.set_format("mlir");
  request.set_device_count(devices);
  xla::CompileOptionsProto options;
  auto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(1);
  build.set_num_partitions(devices);
  build.set_use_spmd_partitioning(devices > 1);
  request.set_options(options.SerializeAsString());
  return request;
}

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gangway-compiler-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.transport = transport_.get();
    options_.head_address = "head";
    options_.backend = &Backend();
    options_.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
    options_.cache_folder = folder_ / "cache";
  }
  void TearDown() override {
    Stop();
    listener_.reset();
    transport_.reset();
    loop_.Stop();
    std::filesystem::remove_all(folder_);
  }

  void Listen() {
    auto listener = transport_->Listen("head", [this](std::shared_ptr<transport::Link> link) {
      MutexLock lock(mutex_);
      link_ = std::move(link);
      transport::LinkEvents events;
      events.executor = &loop_;
      events.on_frame = [this](wire::Frame frame) { OnFrame(std::move(frame)); };
      return events;
    });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  void Start() {
    thread_ = std::jthread([this](std::stop_token stop) {
      absl::Status status = RunCompiler(options_, stop);
      MutexLock lock(mutex_);
      ended_ = status;
      changed_.NotifyAll();
    });
  }
  void Stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  void OnFrame(wire::Frame frame) {
    MutexLock lock(mutex_);
    EXPECT_EQ(frame.sequence(), ++sequence_);
    if (frame.has_hello()) {
      hello_ = frame.hello();
      wire::Frame reply;
      *reply.mutable_hello_reply() = reply_;
      EXPECT_TRUE(link_->Send(std::move(reply)).ok());
    }
    heartbeats_ += frame.has_heartbeat();
    if (frame.has_compile_result())
      results_[frame.compile_result().request()] = frame.compile_result();
    changed_.NotifyAll();
  }
  bool WaitHello() {
    MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, kLimit,
                            [this]() GANGWAY_NO_ANALYSIS { return hello_.has_value(); });
  }
  absl::Status WaitRunEnded() {
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return ended_.has_value(); });
    return ended_.value_or(absl::UnknownError("still running"));
  }
  void Send(wire::CompileRequest request) {
    wire::Frame frame;
    *frame.mutable_compile_request() = std::move(request);
    MutexLock lock(mutex_);
    EXPECT_TRUE(link_->Send(std::move(frame)).ok());
  }
  wire::CompileResult WaitResult(uint64_t request) {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.WaitFor(
        mutex_, kLimit, [&]() GANGWAY_NO_ANALYSIS { return results_.count(request) > 0; }));
    return results_[request];
  }

  std::filesystem::path folder_;
  CompilerOptions options_;
  wire::HelloReply reply_;
  std::unique_ptr<transport::Transport> transport_ = transport::NewInprocTransport();
  EventLoop loop_{"head"};
  std::unique_ptr<transport::Listener> listener_;
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<wire::Hello> hello_ GANGWAY_GUARDED_BY(mutex_);
  std::map<uint64_t, wire::CompileResult> results_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
  int heartbeats_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILER_TEST_UTIL_H_
