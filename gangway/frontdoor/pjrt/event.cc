// Implementation of event.h.
#include "gangway/frontdoor/pjrt/event.h"

#include <optional>
#include <utility>

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/error.h"

namespace gangway::pjrt {
namespace {

constexpr char kEvent[] = "the event";

}  // namespace

PJRT_Event* NewEvent(std::shared_ptr<Outcome> outcome) {
  return new PJRT_Event{std::move(outcome)};
}

PJRT_Event* ReadyEvent(const absl::Status& status) {
  auto outcome = std::make_shared<Outcome>();
  outcome->Set(status);
  return NewEvent(std::move(outcome));
}

absl::Status EventDestroy(PJRT_Event_Destroy_Args& args) {
  delete args.event;
  return absl::OkStatus();
}

absl::Status EventIsReady(PJRT_Event_IsReady_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.event, kEvent));
  args.is_ready = args.event->outcome->Peek().has_value();
  return absl::OkStatus();
}

absl::Status EventError(PJRT_Event_Error_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.event, kEvent));
  const std::optional<absl::Status> status = args.event->outcome->Peek();
  return status ? *status : absl::FailedPreconditionError("the event is not ready: await it first");
}

absl::Status EventAwait(PJRT_Event_Await_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.event, kEvent));
  const std::shared_ptr<Outcome> outcome = args.event->outcome;
  return outcome->Wait();
}

absl::Status EventOnReady(PJRT_Event_OnReady_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.event, kEvent));
  GANGWAY_RETURN_IF_ERROR(Need(reinterpret_cast<const void*>(args.callback), "the callback"));
  args.event->outcome->Then(
      [callback = args.callback, user_arg = args.user_arg](const absl::Status& status) {
        callback(ToError(status), user_arg);
      });
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
