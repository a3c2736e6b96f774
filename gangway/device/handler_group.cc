// Implementation of handler_group.h.
#include "gangway/device/handler_group.h"

#include <spdlog/spdlog.h>

#include "absl/status/status.h"

namespace gangway::device {
namespace {

std::vector<FfiHandler> Possible(const Capabilities& capabilities, const HandlerGroup& group) {
  std::vector<FfiHandler> possible;
  for (const FfiHandler& handler : group.handlers) {
    if (Takes(capabilities, handler)) possible.push_back(handler);
  }
  return possible;
}

absl::Status Register(Backend& backend, std::span<const FfiHandler> handlers) {
  return handlers.empty() ? absl::OkStatus() : backend.RegisterFfiHandlers(handlers);
}

}  // namespace

void OfferHandlers(Backend& backend, std::span<const HandlerGroup> groups) {
  const Capabilities& capabilities = backend.capabilities();
  std::vector<FfiHandler> all;
  for (const HandlerGroup& group : groups) {
    for (FfiHandler& handler : Possible(capabilities, group)) all.push_back(std::move(handler));
  }
  if (Register(backend, all).ok()) return;
  for (const HandlerGroup& group : groups) {
    const absl::Status status = Register(backend, Possible(capabilities, group));
    if (status.ok()) continue;
    spdlog::warn("This process rejects programs {}: {}", group.programs,
                 std::string(status.message()));
  }
}

}  // namespace gangway::device
