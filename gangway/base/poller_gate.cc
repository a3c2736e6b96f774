// Implementation of poller_gate.h.
#include "gangway/base/poller_gate.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"

namespace gangway {

absl::StatusOr<std::unique_ptr<PollerGate>> PollerGate::Create(std::shared_ptr<Poller> poller) {
  std::unique_ptr<PollerGate> gate(new PollerGate(std::move(poller)));
  gate->outer_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (gate->outer_.valid() &&
      epoll_ctl(gate->outer_.get(), EPOLL_CTL_ADD, gate->poller_->descriptor(), &event) == 0)
    return gate;
  return absl::UnavailableError(
      absl::StrCat("cannot create an epoll set for an event loop: ", std::strerror(errno)));
}

void PollerGate::Sleep(Clock::time_point deadline) {
  epoll_event event;
  WaitForEvents(outer_.get(), std::span<epoll_event>(&event, 1), deadline);
}

void PollerGate::Shut() { Change(0); }

void PollerGate::Open() { Change(EPOLLIN); }

void PollerGate::Change(uint32_t epoll_events) {
  epoll_event event{.events = epoll_events, .data = {.u64 = 0}};
  const int changed = epoll_ctl(outer_.get(), EPOLL_CTL_MOD, poller_->descriptor(), &event);
  GANGWAY_CHECK(changed == 0, "the events of a watched descriptor can be changed");
}

}  // namespace gangway
