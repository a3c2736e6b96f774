// The Wait of a session: its thread leads the client's loop while it waits, where the loop has a poller, which it has
// over unix sockets (EventLoop::Await). Over other transports the loop's own thread reads, and wakes this one.
//
// Threading: as Wait says. In a forked child, which has no thread that could end it, For returns at once.
#ifndef GANGWAY_CLIENT_SESSION_WAIT_H_
#define GANGWAY_CLIENT_SESSION_WAIT_H_

#include <algorithm>
#include <chrono>
#include <memory>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/loop_wait.h"
#include "gangway/client/client.h"
#include "gangway/client/host_callbacks.h"
#include "gangway/client/origin.h"

namespace gangway::client {

class SessionWait final : public Wait {
 public:
  SessionWait(EventLoop* loop, const Origin& origin) : loop_(loop), origin_(origin) {}

  void End() override {
    if (!origin_.is_elsewhere()) wait_->End();
  }

  bool For(std::chrono::nanoseconds limit) override {
    if (origin_.is_elsewhere()) [[unlikely]]
      return false;
    // What the loop's callbacks submit does not belong to the host callback that waits here.
    const HostCallbacks::Outside outside;
    const std::chrono::nanoseconds day = std::chrono::hours(24);  // a later deadline may overflow
    return loop_->Await(wait_, Clock::now() + std::min(limit, day));
  }

 private:
  EventLoop* const loop_;  // used by For only
  const Origin origin_;
  const std::shared_ptr<LoopWait> wait_ = std::make_shared<LoopWait>();
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_SESSION_WAIT_H_
