// For the native end-to-end tests: NativeClient wraps the client library in blocking calls, and
// BareLink sends arbitrary frames to any port of a cluster.
//
// Threading: each object belongs to the test's thread; callbacks on other threads store their results
// under a lock. Failure: every wait has the limit kLimit, after which the test fails.
#ifndef TESTS_NATIVE_NATIVE_CLIENT_H_
#define TESTS_NATIVE_NATIVE_CLIENT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/client/connect.h"
#include "gangway/transport/by_address.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::e2e {

inline constexpr std::chrono::seconds kLimit{25};
inline constexpr int32_t kF32 = 11;  // XLA PrimitiveType

// A value that a callback delivers. Shared with the callback, which may outlive a failed wait.
template <typename T>
class Arrival : public Answer<T> {
 public:
  std::optional<T> Wait() { return this->WaitFor(kLimit); }
};

inline const absl::Status& Late() {
  static const absl::Status late = absl::DeadlineExceededError("no reply within the test's limit");
  return late;
}

// The library's client; each array has one shard of floats, on device 0.
class NativeClient {
 public:
  explicit NativeClient(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  Client& operator*() { return *client_; }
  Client* operator->() { return client_.get(); }

  ArrayHandle Put(const std::vector<float>& values) {
    const ArrayHandle array = client_->NewArrayHandle();
    ArraySpec spec{.element_type = kF32,
                   .shard_dims = {static_cast<int64_t>(values.size())},
                   .devices = {0},
                   .shard_bytes = values.size() * sizeof(float)};
    auto bytes = std::make_shared<std::string>(reinterpret_cast<const char*>(values.data()),
                                               spec.shard_bytes);
    client_->Push(client_->Upload(array, spec), 0, *bytes, [bytes] {});
    return array;
  }

  absl::StatusOr<ExecutableHandle> CompileDouble() {
    xla::CompileOptionsProto options;
    options.mutable_executable_build_options()->set_num_replicas(1);
    options.mutable_executable_build_options()->set_num_partitions(1);
    return CompileDouble(options.SerializeAsString());
  }

  // `x -> x + x` for four floats, with serialized compile options.
  absl::StatusOr<ExecutableHandle> CompileDouble(const std::string& options) {
    auto compiled = std::make_shared<Arrival<absl::Status>>();
    const ExecutableHandle handle = client_->Compile(
        R"(module @double {
          func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
            %y = stablehlo.add %x, %x : tensor<4xf32>
            return %y : tensor<4xf32>
          }
        })",
        "mlir", options, {0}, [compiled](auto info) { compiled->Set(info.status()); });
    const absl::Status status = compiled->Wait().value_or(Late());
    if (!status.ok()) return status;
    return handle;
  }

  ArrayHandle Run(ExecutableHandle executable, ArrayHandle argument) {
    const ArrayHandle result = client_->NewArrayHandle();
    client_->Call(executable, std::vector{argument}, std::vector{result});
    return result;
  }

  absl::Status Await(ArrayHandle array) {
    auto done = std::make_shared<Arrival<absl::Status>>();
    client_->Await(std::vector{array}, [done](absl::Status status) { done->Set(status); });
    return done->Wait().value_or(Late());
  }

  absl::StatusOr<std::vector<float>> Get(ArrayHandle array) {
    auto done = std::make_shared<Arrival<absl::Status>>();
    auto bytes = std::make_shared<std::string>();
    client_->Fetch(array, {0},
                   {.on_data = [bytes](size_t, uint64_t, std::string_view data) { *bytes += data; },
                    .on_done = [done](absl::Status status) { done->Set(status); }});
    const absl::Status status = done->Wait().value_or(Late());
    if (!status.ok()) return status;
    const auto* values = reinterpret_cast<const float*>(bytes->data());
    return std::vector<float>(values, values + bytes->size() / sizeof(float));
  }

 private:
  std::unique_ptr<Client> client_;
};

// The token of the role, from the cluster's folder.
inline std::string ClusterToken(wire::Role role = wire::ROLE_CLIENT) {
  const char* folder = std::getenv("GANGWAY_TEST_FOLDER");
  const std::string file =
      role == wire::ROLE_CLIENT ? "token" : transport::RoleName(role) + ".token";
  std::ifstream text(absl::StrCat(folder == nullptr ? "" : folder, "/", file));
  std::string token;
  text >> token;
  return token;
}

inline wire::Frame HelloFrame(wire::Role role) {
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(role);
  hello->set_name("a bare link");
  if (role != wire::ROLE_DATA) hello->set_token(ClusterToken(role));
  return frame;
}

// A link without the client library, which would check the frames.
class BareLink {
 public:
  BareLink(transport::Transport& transport, const std::string& address) : loop_("bare") {
    transport::LinkEvents events;
    events.executor = &loop_;
    events.on_frame = [this](wire::Frame frame) {
      MutexLock lock(mutex_);
      frames_.push_back(std::move(frame));
      changed_.NotifyAll();
    };
    events.on_closed = [this](const absl::Status&) {
      MutexLock lock(mutex_);
      closed_ = true;
      changed_.NotifyAll();
    };
    auto link = transport.Connect(address, std::move(events), kLimit);
    EXPECT_TRUE(link.ok()) << link.status();
    if (link.ok()) link_ = *std::move(link);
  }
  ~BareLink() {
    loop_.Post([link = std::exchange(link_, nullptr)] {
      if (link) link->Close(absl::CancelledError("the test is done"));
    });
    loop_.Stop();
  }

  void Send(wire::Frame frame) {
    frame.set_sequence(++sequence_);
    const absl::Status sent = link_ ? link_->Send(std::move(frame)) : Late();
    EXPECT_TRUE(sent.ok()) << sent;
  }
  void Send(wire::Op op) {
    wire::Frame frame;
    *frame.mutable_session_batch()->add_ops() = std::move(op);
    Send(std::move(frame));
  }

  // Removes and returns the first frame that satisfies `wanted`; an empty frame after the limit.
  wire::Frame Take(const std::function<bool(const wire::Frame&)>& wanted) {
    wire::Frame frame;
    MutexLock lock(mutex_);
    auto find = [&]() GANGWAY_NO_ANALYSIS {
      auto it = std::find_if(frames_.begin(), frames_.end(), wanted);
      if (it == frames_.end()) return closed_;
      frame = std::move(*it);
      frames_.erase(it);
      return true;
    };
    EXPECT_TRUE(changed_.WaitFor(mutex_, kLimit, find)) << "the wanted frame did not arrive";
    return frame;
  }
  // The first frame that satisfies `wanted` among those that have come; an empty one if none does.
  wire::Frame Find(const std::function<bool(const wire::Frame&)>& wanted) {
    MutexLock lock(mutex_);
    const auto it = std::find_if(frames_.begin(), frames_.end(), wanted);
    return it == frames_.end() ? wire::Frame() : *it;
  }
  wire::HelloReply TakeHelloReply() {
    return Take([](const wire::Frame& frame) { return frame.has_hello_reply(); }).hello_reply();
  }
  // The first event that satisfies `wanted`. Removes its frame with all of its events.
  wire::SessionEvent TakeEvent(const std::function<bool(const wire::SessionEvent&)>& wanted) {
    wire::SessionEvent found;
    Take([&](const wire::Frame& frame) {
      for (const wire::SessionEvent& event : frame.session_events().events()) {
        if (!wanted(event)) continue;
        found = event;
        return true;
      }
      return false;
    });
    return found;
  }

  // Waits until the peer closes the link; returns the frames that were not taken.
  std::deque<wire::Frame> WaitClosed() {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.WaitFor(mutex_, kLimit, [this]() GANGWAY_NO_ANALYSIS { return closed_; }))
        << "the link was not closed";
    return frames_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<wire::Frame> frames_ GANGWAY_GUARDED_BY(mutex_);
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
  EventLoop loop_;
  std::shared_ptr<transport::Link> link_;
  uint64_t sequence_ = 0;
};

// A test against a cluster that tests/test_native.py has started: GANGWAY_TEST_CONTROL is its
// control address, GANGWAY_TEST_FOLDER has its tokens.
class ClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* control = std::getenv("GANGWAY_TEST_CONTROL");
    ASSERT_NE(control, nullptr) << "tests/test_native.py runs these cases, each with its cluster";
    control_ = control;
    auto transport = transport::NewTransportByAddress();
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }

  absl::StatusOr<std::unique_ptr<Client>> Open(const std::string& address) {
    ClientOptions options;
    options.controller_address = address;
    options.token = ClusterToken();
    options.name = testing::UnitTest::GetInstance()->current_test_info()->name();
    options.control = transport_.get();
    options.data = transport_.get();
    options.connect_limit = kLimit;
    return Connect(options);
  }

  wire::StatusReply Status() {
    BareLink tool(*transport_, control_);
    tool.Send(HelloFrame(wire::ROLE_TOOL));
    wire::Frame ask;
    ask.mutable_status_request();
    tool.Send(std::move(ask));
    return tool.Take([](const wire::Frame& frame) { return frame.has_status_reply(); })
        .status_reply();
  }

  std::string control_;
  std::unique_ptr<transport::Transport> transport_;
};

}  // namespace gangway::e2e

#endif  // TESTS_NATIVE_NATIVE_CLIENT_H_
