// Implementation of event.h.
#include "gangway/frontdoor/pjrt/event.h"

#include <dlfcn.h>

#include <chrono>
#include <optional>
#include <utility>

#include "gangway/base/spin.h"
#include "gangway/base/status.h"
#include "gangway/base/vain_tries.h"
#include "gangway/frontdoor/pjrt/error.h"

namespace gangway::pjrt {
namespace {

constexpr char kEvent[] = "the event";

constexpr std::chrono::milliseconds kLookMax{1};

thread_local bool is_subscribing = false, is_in_callback = false;
thread_local VainTries leads;  // of LookFor

// Sets a flag of this thread for a scope.
class Flagged {
 public:
  Flagged(bool& flag, bool value) : flag_(flag), before_(std::exchange(flag, value)) {}
  ~Flagged() { flag_ = before_; }
  Flagged(const Flagged&) = delete;
  Flagged& operator=(const Flagged&) = delete;

 private:
  bool& flag_;
  const bool before_;
};

// Whether this thread holds Python's lock, if the process is Python's. A callback that such a thread runs may want a
// lock of another thread, which waits for Python's.
bool HoldsPythonsLock() {
  using Check = int (*)();
  static const auto check = reinterpret_cast<Check>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return check != nullptr && check() == 1;
}

// In a callback.
absl::Status Seen(Outcome& outcome) {
  if (const std::optional<absl::Status> status = outcome.Peek()) return *status;
  return absl::FailedPreconditionError(
      "a callback of an event cannot wait for the cluster: subscribe to that event, too, or wait "
      "in another thread");
}

}  // namespace

bool IsInCallback() { return is_in_callback; }

void LookFor(Outcome& outcome) {
  if (is_in_callback || outcome.Peek()) return;
  if (HoldsPythonsLock()) {
    Spin spin(Spin::For::kAnswer);
    while (!outcome.Peek() && spin.Again()) continue;
    if (outcome.Peek()) spin.Found();
    return;
  }
  if (!leads.LeavesOut()) leads.Note(outcome.WaitFor(kLookMax).has_value());
}

absl::Status WaitFor(Outcome& outcome) { return is_in_callback ? Seen(outcome) : outcome.Wait(); }

std::optional<absl::Status> WaitFor(Outcome& outcome, std::chrono::milliseconds limit) {
  return is_in_callback ? Seen(outcome) : outcome.WaitFor(limit);
}

PJRT_Event* NewEvent(std::shared_ptr<Outcome> outcome, Outcome::Wanted subscription) {
  return new PJRT_Event{std::move(outcome), subscription};
}

PJRT_Event* ReadyEvent(const absl::Status& status) {
  static const auto& good = *new std::shared_ptr<Outcome>([] {
    auto outcome = std::make_shared<Outcome>();
    outcome->Set(absl::OkStatus());
    return outcome;
  }());
  if (status.ok()) return NewEvent(good);
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
  return WaitFor(*outcome);
}

absl::Status EventOnReady(PJRT_Event_OnReady_Args& args) {
  GANGWAY_RETURN_IF_ERROR(Need(args.event, kEvent));
  GANGWAY_RETURN_IF_ERROR(Need(reinterpret_cast<const void*>(args.callback), "the callback"));
  const Flagged subscribing(is_subscribing, true);  // a callback that runs at once may wait
  const std::shared_ptr<Outcome> outcome = args.event->outcome;  // a callback may destroy the event
  const Outcome::Wanted wanted = args.event->subscription;
  outcome->Then(
      [callback = args.callback, user_arg = args.user_arg](const absl::Status& status) {
        const Flagged in_callback(is_in_callback, is_in_callback || !is_subscribing);
        const Flagged not_subscribing(is_subscribing, false);
        callback(ToError(status), user_arg);
      },
      wanted);
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
