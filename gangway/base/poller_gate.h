// PollerGate: where the thread of an event loop sleeps while another thread may poll in its place (EventLoop::Await).
// An open gate wakes the thread when its poller has something ready; behind a shut gate it sleeps on, and takes no
// event from the thread that polls. To open and to shut the gate wakes no thread.
//
// Threading: Sleep on one thread; Open and Shut from any thread, one call at a time. Failure: only Create fails.
#ifndef GANGWAY_BASE_POLLER_GATE_H_
#define GANGWAY_BASE_POLLER_GATE_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/poller.h"

namespace gangway {

class PollerGate {
 public:
  // Open. UNAVAILABLE: the system has no descriptors for it.
  static absl::StatusOr<std::unique_ptr<PollerGate>> Create(std::shared_ptr<Poller> poller);

  // Returns when the gate is open and the poller has something ready or was woken, or at `deadline`; perhaps sooner.
  // Takes no event off the poller.
  void Sleep(Clock::time_point deadline);
  void Shut();
  void
  Open();  // what is ready, or was while the gate was shut, and has not been polled ends a Sleep

 private:
  explicit PollerGate(std::shared_ptr<Poller> poller) : poller_(std::move(poller)) {}
  void Change(uint32_t epoll_events);

  const std::shared_ptr<Poller> poller_;
  FileDescriptor outer_;  // an epoll set that watches the poller's
};

}  // namespace gangway

#endif  // GANGWAY_BASE_POLLER_GATE_H_
