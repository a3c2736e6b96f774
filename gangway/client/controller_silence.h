// ControllerSilence: asks the controller, while answers of it are awaited, for a sign of life on the control link, and
// says when its process has been silent for too long (control_watch.h).
//
// Threading: on the loop. Failure: none; a closed link reports itself.
#ifndef GANGWAY_CLIENT_CONTROLLER_SILENCE_H_
#define GANGWAY_CLIENT_CONTROLLER_SILENCE_H_

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gangway/client/control_watch.h"
#include "gangway/transport/transport.h"

namespace gangway::client {

class ControllerSilence {
 public:
  // `address`: for people. `silence_max` zero: it is never asked. `interval`: of the looks.
  ControllerSilence(std::string address, std::chrono::milliseconds silence_max,
                    std::chrono::milliseconds interval)
      : address_(std::move(address)),
        silence_max_(silence_max),
        control_watch_(silence_max, interval) {}

  // A frame has come from it.
  void Heard() { control_watch_.Heard(); }

  bool is_asked() const { return silence_max_.count() > 0; }
  // To be called in every interval while answers are awaited. Not OK: it is silent for too long.
  absl::Status Look(transport::Link& link, uint64_t epoch);

  // A sentence for people about a silence that may explain another failure; empty: nothing is known.
  std::string Suspicion() const;

 private:
  const std::string address_;
  const std::chrono::milliseconds silence_max_;
  ControlWatch control_watch_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONTROLLER_SILENCE_H_
