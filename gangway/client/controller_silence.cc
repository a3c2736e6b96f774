// Implementation of controller_silence.h.
#include "gangway/client/controller_silence.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::client {
namespace {
constexpr std::chrono::seconds kTold{2};  // a busy controller answers sooner
}  // namespace

absl::Status ControllerSilence::Look(transport::Link& link, uint64_t epoch) {
  const auto now = Clock::now();
  switch (control_watch_.Look(now, link.queued_bytes())) {
    case ControlWatch::Verdict::kWait:
      break;
    case ControlWatch::Verdict::kAsk: {
      wire::Frame frame;
      frame.set_epoch(epoch);
      frame.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
      (void)link.Send(std::move(frame));  // on_closed reports a closed link
      break;
    }
    case ControlWatch::Verdict::kSilent:
      return absl::DeadlineExceededError(absl::StrCat(
          "nothing came from it for ", silence_max_.count(),
          " ms, although it was asked: its process stands still, or the network to it is cut"));
  }
  return absl::OkStatus();
}

// Workers whose controller's host is cut off end themselves, which may be seen before the controller's own silence has
// lasted long enough.
std::string ControllerSilence::Suspicion() const {
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(control_watch_.silent_for(Clock::now()));
  if (silent < kTold) return "";
  return absl::StrCat("nor has the controller at ", address_, " answered for ", silent.count(),
                      " s");
}

}  // namespace gangway::client
