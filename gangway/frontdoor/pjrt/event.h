// Events of the C API: what a caller asks, awaits or subscribes to about something that the cluster has been asked for.
//
// Threading: any thread. Callbacks run on the client library's loop, where they cannot wait, or at once on the caller's
// thread. While a thread waits, or looks for an outcome, it stands in for the loop's thread (gangway::Wait): the
// callbacks of others then run on it. XLA's own plugin also runs callbacks inside of other calls.
#ifndef GANGWAY_FRONTDOOR_PJRT_EVENT_H_
#define GANGWAY_FRONTDOOR_PJRT_EVENT_H_

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "pjrt_c_api.h"

#include "gangway/frontdoor/outcome.h"

struct PJRT_Event {
  std::shared_ptr<gangway::Outcome> outcome;
  gangway::Outcome::Wanted subscription;  // of a subscription's callback
};

namespace gangway::pjrt {

PJRT_Event* NewEvent(std::shared_ptr<Outcome> outcome,
                     Outcome::Wanted subscription = Outcome::Wanted::kAtOnce);
PJRT_Event* ReadyEvent(const absl::Status& status);  // set already

// Whether this is a callback of an event, on the thread that serves the session. What needs the cluster's answer would
// wait there for itself.
bool IsInCallback();

// For a caller that is about to wait in itself, for a callback: gives the outcome a moment to come, 1 ms, in which this
// thread reads the session's answers, so that a short call wakes it alone. Not longer, since a caller may only want to
// know whether the outcome is set; and a thread that holds Python's lock, which callbacks wait for, reads none. After a
// look in vain, a growing number of this thread's looks is left out. Returns at once in a callback.
void LookFor(Outcome& outcome);

// Waits for the outcome. FAILED_PRECONDITION, at once: it is not set, and this is such a callback.
absl::Status WaitFor(Outcome& outcome);
// Null: it was not set within `limit`.
std::optional<absl::Status> WaitFor(Outcome& outcome, std::chrono::milliseconds limit);

absl::Status EventDestroy(PJRT_Event_Destroy_Args& args);
absl::Status EventIsReady(PJRT_Event_IsReady_Args& args);
absl::Status EventError(PJRT_Event_Error_Args& args);
absl::Status EventAwait(PJRT_Event_Await_Args& args);
absl::Status EventOnReady(PJRT_Event_OnReady_Args& args);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_EVENT_H_
