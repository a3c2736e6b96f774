// The base of every incoming gRPC call of the front door: a call is requested from gRPC, begins
// when a client makes it, and deletes itself when gRPC has completed its last operation.
//
// Threading: gRPC completes a call's operations on the server's only completion thread, which
// serves all sessions, so nothing there may block or copy much. (Parsing a large program is
// accepted.) Failure: a call ends itself with a status; a server that shuts down cancels all calls
// and waits in LiveCalls until they have ended.
#ifndef GANGWAY_FRONTDOOR_IFRT_CALL_H_
#define GANGWAY_FRONTDOOR_IFRT_CALL_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"

#include "gangway/base/completion_thread.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/frontdoor/ifrt/doorkeeper.h"
#include "gangway/frontdoor/ifrt/server.h"
#include "gangway/frontdoor/ifrt/session_registry.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {

namespace proxy = ::xla::ifrt::proxy;

class LiveCalls {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
  }
  void Remove() {
    MutexLock lock(mutex_);
    if (--count_ == 0) none_.NotifyAll();
  }
  bool WaitForNone(std::chrono::seconds limit) {
    MutexLock lock(mutex_);
    return none_.WaitFor(mutex_, limit, [this]() GANGWAY_NO_ANALYSIS { return count_ == 0; });
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int count_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// Calls that carry bulk bytes are served raw: their bytes are neither copied into a message nor out
// of one.
using AsyncService = proxy::GrpcIfrtService::WithAsyncMethod_GetVersion<
    proxy::GrpcIfrtService::WithAsyncMethod_IfrtSession<
        proxy::GrpcIfrtService::WithRawMethod_HostBufferStore<
            proxy::GrpcIfrtService::WithRawMethod_HostBufferLookup<
                proxy::GrpcIfrtService::WithAsyncMethod_HostBufferDelete<
                    proxy::GrpcIfrtService::WithAsyncMethod_HostBufferReadFromDisk<
                        proxy::GrpcIfrtService::Service>>>>>>;

// Shared by the calls. Outlives them.
struct CallEnvironment {
  explicit CallEnvironment(const IfrtServerOptions& chosen)
      : options(chosen), door(chosen.limits, &timers) {}

  ClientFactory factory;
  IfrtServerOptions options;
  SessionRegistry registry;
  LiveCalls live;
  EventLoop bulk{"ifrt-bulk"};  // copies what is too large for the completion thread
  EventLoop timers{"ifrt-timers"};
  Doorkeeper door;
  AsyncService service;
  grpc::ServerCompletionQueue* queue = nullptr;  // not owned
};

class Call {
 public:
  explicit Call(CallEnvironment& environment) : environment_(environment) {
    environment_.live.Add();
  }
  virtual ~Call() {
    if (connection_ != nullptr) environment_.door.Leave(*connection_);
    environment_.live.Remove();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Asks gRPC for the next call of this kind; `tag` completes when a client makes it.
  virtual void Request(void* tag) = 0;
  // A client made the call, which owns itself from here on.
  void Start() {
    absl::Status refused;
    connection_ = environment_.door.Enter(context_.peer(), refused);
    if (refused.ok()) {
      Begin();
    } else {
      Refuse(refused);
    }
  }

 protected:
  virtual void Begin() = 0;
  virtual void Refuse(const absl::Status& why) = 0;  // instead of Begin

  // The host buffers of the session whose number the client knows.
  absl::StatusOr<std::shared_ptr<HostBuffers>> FindSession(uint64_t id) {
    auto buffers = environment_.registry.Find(id);
    if (buffers.ok()) environment_.door.Prove(*connection_, *buffers);
    return buffers;
  }

  CallEnvironment& environment_;
  grpc::ServerContext context_;
  std::shared_ptr<Doorkeeper::Connection> connection_;  // since Start
};

// Waits for calls of one kind, one after the other, until the server shuts down.
class Acceptor final : public Completion {
 public:
  using Make = std::unique_ptr<Call> (*)(CallEnvironment&);

  static void Start(CallEnvironment& environment, Make make) {
    auto* acceptor = new Acceptor(environment, make);
    acceptor->call_->Request(static_cast<Completion*>(acceptor));
  }

  void Run(bool ok) override {
    std::unique_ptr<Acceptor> self(this);
    if (!ok) return;
    Start(environment_, make_);
    call_.release()->Start();
  }

 private:
  Acceptor(CallEnvironment& environment, Make make)
      : environment_(environment), make_(make), call_(make(environment)) {}

  CallEnvironment& environment_;
  const Make make_;
  std::unique_ptr<Call> call_;
};

template <typename Message>
absl::Status ReadMetadata(const grpc::ServerContext& context, const char* key, Message& message) {
  auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end() ||
      !message.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the call lacks valid '", key, "' metadata: it is not from an IFRT proxy client"));
  }
  return absl::OkStatus();
}

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_CALL_H_
