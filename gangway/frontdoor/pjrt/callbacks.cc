// Implementation of callbacks.h.
#include "gangway/frontdoor/pjrt/callbacks.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

struct GangwayHostCall {
  std::vector<std::string> results;
  absl::Status status;
};

namespace gangway::pjrt {
namespace {

std::atomic<GangwayHostHandler> handler_of_process = nullptr;
std::atomic<size_t> calls_in_progress = 0;

Result<std::vector<std::string>> CallHandler(uint64_t function,
                                             std::span<const std::string_view> operands) {
  calls_in_progress.fetch_add(1);
  GangwayHostCall call;
  if (const GangwayHostHandler handler = handler_of_process.load()) {
    std::vector<const void*> data;
    std::vector<size_t> bytes;
    for (std::string_view operand : operands) {
      data.push_back(operand.data());
      bytes.push_back(operand.size());
    }
    handler(&call, function, operands.size(), data.data(), bytes.data());
  } else {
    call.status = absl::FailedPreconditionError(
        "the script's process runs no host callbacks: it is ending, or Gangway's Python package "
        "did "
        "not load the plugin");
  }
  calls_in_progress.fetch_sub(1);
  if (!call.status.ok()) return Status(call.status);
  return std::move(call.results);
}

}  // namespace

PJRT_Extension_Base* CallbacksExtension() {
  static GangwayCallbacksExtension extension{
      .base = {.struct_size = sizeof(GangwayCallbacksExtension),
               .type = static_cast<PJRT_Extension_Type>(GANGWAY_CALLBACKS_EXTENSION_TYPE),
               .next = nullptr},
      .set_handler =
          [](GangwayHostHandler handler) {
            handler_of_process = handler;
            return calls_in_progress.load();
          },
      .add_result =
          [](GangwayHostCall* call, const void* data, size_t bytes) {
            call->results.emplace_back(static_cast<const char*>(data), bytes);
          },
      .fail =
          [](GangwayHostCall* call, const char* text, size_t bytes) {
            call->status = absl::InternalError(absl::string_view(text, bytes));
          }};
  return &extension.base;
}

HostFunctions HostFunctionsOfProcess() { return CallHandler; }

}  // namespace gangway::pjrt
