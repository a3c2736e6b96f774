// The Wait of a session: its thread leads the client's loop while it waits, where the loop has a poller, which it has
// over unix sockets (EventLoop::Await). Over other transports the loop's own thread reads, and wakes this one.
//
// Threading: as Wait says. In a forked child, which has no thread that could end it, For returns at once.
#ifndef GANGWAY_CLIENT_SESSION_WAIT_H_
#define GANGWAY_CLIENT_SESSION_WAIT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/fork.h"
#include "gangway/base/loop_wait.h"
#include "gangway/client/client.h"
#include "gangway/client/host_callbacks.h"

namespace gangway::client {

class SessionWait final : public Wait {
 public:
  SessionWait(EventLoop* loop, uint64_t fork_generation)
      : loop_(loop), fork_generation_(fork_generation) {}

  void End() override {
    if (!IsOrphan()) wait_->End();
  }

  bool For(std::chrono::nanoseconds limit) override {
    if (IsOrphan()) [[unlikely]]
      return false;
    // What the loop's callbacks submit does not belong to the host callback that waits here.
    const HostCallbacks::Outside outside;
    const std::chrono::nanoseconds day = std::chrono::hours(24);  // a later deadline may overflow
    return loop_->Await(wait_, Clock::now() + std::min(limit, day));
  }

 private:
  bool IsOrphan() const { return ForkGeneration() != fork_generation_; }

  EventLoop* const loop_;  // used by For only
  const uint64_t fork_generation_;
  const std::shared_ptr<LoopWait> wait_ = std::make_shared<LoopWait>();
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_SESSION_WAIT_H_
