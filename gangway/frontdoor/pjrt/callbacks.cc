// Implementation of callbacks.h.
#include "gangway/frontdoor/pjrt/callbacks.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"
#include "gangway/client/include/gangway/connect.h"

struct GangwayHostCall {
  std::vector<std::string> results;
  absl::Status status;
};

namespace gangway::pjrt {
namespace {

// The handler of this process, and the calls that run one.
class Handler {
 public:
  size_t Set(GangwayHostHandler handler, std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_) {
    if (ForkGeneration() != fork_generation_) return 0;
    MutexLock lock(mutex_);
    handler_ = handler;
    idle_.WaitFor(mutex_, limit, [this]() GANGWAY_NO_ANALYSIS { return running_ == 0; });
    return running_;
  }

  // Null: there is none. Otherwise Leave follows.
  GangwayHostHandler Enter() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (handler_ != nullptr) ++running_;
    return handler_;
  }
  void Leave() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (--running_ == 0) idle_.NotifyAll();
  }

 private:
  const uint64_t fork_generation_ = ForkGeneration();
  Mutex mutex_;
  CondVar idle_;
  GangwayHostHandler handler_ GANGWAY_GUARDED_BY(mutex_) = nullptr;
  size_t running_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

// Never destroyed: calls may run while the process ends.
Handler& HandlerOfProcess() {
  static auto* const handler = new Handler;
  return *handler;
}

Result<std::vector<std::string>> CallHandler(uint64_t function,
                                             std::span<const std::string_view> operands) {
  const GangwayHostHandler handler = HandlerOfProcess().Enter();
  if (handler == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "the script's process runs no host callbacks: it is ending, or Gangway's Python "
                  "package did not load the plugin");
  }
  std::vector<const void*> data;
  std::vector<size_t> bytes;
  for (std::string_view operand : operands) {
    data.push_back(operand.data());
    bytes.push_back(operand.size());
  }
  GangwayHostCall call;
  handler(&call, function, operands.size(), data.data(), bytes.data());
  HandlerOfProcess().Leave();
  if (!call.status.ok()) return call.status;
  return std::move(call.results);
}

}  // namespace

PJRT_Extension_Base* CallbacksExtension() {
  static GangwayCallbacksExtension extension{
      .base = {.struct_size = sizeof(GangwayCallbacksExtension),
               .type = static_cast<PJRT_Extension_Type>(GANGWAY_CALLBACKS_EXTENSION_TYPE),
               .next = nullptr},
      .set_handler =
          [](GangwayHostHandler handler, size_t limit_ms) {
            return HandlerOfProcess().Set(handler, std::chrono::milliseconds(limit_ms));
          },
      .add_result =
          [](GangwayHostCall* call, const void* data, size_t bytes) {
            call->results.emplace_back(static_cast<const char*>(data), bytes);
          },
      .fail =
          [](GangwayHostCall* call, const char* text, size_t bytes) {
            call->status = absl::InternalError(absl::string_view(text, bytes));
          },
      .traffic =
          [](uint64_t* counts) {
            const Traffic traffic = TrafficOfProcess();
            counts[0] = traffic.frames_sent;
            counts[1] = traffic.bytes_sent;
            counts[2] = traffic.frames_received;
            counts[3] = traffic.bytes_received;
          }};
  return &extension.base;
}

HostFunctions HostFunctionsOfProcess() { return CallHandler; }

}  // namespace gangway::pjrt
