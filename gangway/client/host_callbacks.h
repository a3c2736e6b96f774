// Runs a session's host callbacks on threads of its own, since they may take any time, and may use the client. They are
// started in the order of arrival; a later one waits for the one before, but not for longer than kPatience: a callback
// may itself run a program with callbacks, or hang.
//
// Threading: any thread. The threads start when the first callback arrives. One in a callback cannot be ended: at the
// end of the session it is left alone, and what it returns is dropped.
#ifndef GANGWAY_CLIENT_HOST_CALLBACKS_H_
#define GANGWAY_CLIENT_HOST_CALLBACKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class HostCallbacks {
 public:
  static constexpr std::chrono::milliseconds kPatience{100};
  static constexpr std::chrono::milliseconds kIdleMax{1000};  // then a thread ends
  static constexpr size_t kThreadsMax = 16;

  using Reply = std::function<void(wire::HostCallbackReply)>;

  HostCallbacks() : state_(std::make_shared<State>()) {}
  ~HostCallbacks() { Stop(); }

  // Whose functions run from now on. Empty: callbacks fail.
  void Serve(HostFunctions functions);

  // `reply` runs on the callback's thread.
  void Add(wire::HostCallback callback, Reply reply);

  // Runs function 0, in its turn, if there are functions: a worker was lost, or is back.
  void TellOfWorkers();

  // Drops what has not begun.
  void Stop();

  // How deep the callback is nested that runs on the calling thread; 0: none does. Threads that a callback starts
  // itself are not known to belong to it.
  static uint32_t Depth();

  // While this exists, what the calling thread runs belongs to no callback.
  class Outside {
   public:
    Outside();
    ~Outside();
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    const uint32_t depth_;
  };

 private:
  struct Waiting {
    wire::HostCallback callback;
    Reply reply;
  };
  // Shared with the threads, which may outlive this.
  struct State : std::enable_shared_from_this<State> {
    void Run() GANGWAY_EXCLUDES(mutex);
    void KeepSpareThread() GANGWAY_REQUIRES(mutex);  // if something waits
    void RunFirst() GANGWAY_REQUIRES(mutex);         // without the mutex during the call
    // When the first one that waits may begin, as it looks now.
    Clock::time_point FirstBegins() const GANGWAY_REQUIRES(mutex);

    Mutex mutex;
    CondVar changed;
    std::shared_ptr<const HostFunctions> functions GANGWAY_GUARDED_BY(mutex);
    std::deque<Waiting> queue GANGWAY_GUARDED_BY(mutex);
    size_t threads GANGWAY_GUARDED_BY(mutex) = 0;
    std::multiset<Clock::time_point> running GANGWAY_GUARDED_BY(mutex);  // since when
    bool stopped GANGWAY_GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_HOST_CALLBACKS_H_
