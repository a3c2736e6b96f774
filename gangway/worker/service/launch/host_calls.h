// The host callbacks of running programs: each waits here, on the thread that runs the program, for the reply of its
// session's client, within a limit (TM-1). The end of the wait is always caused by one of: the reply, the limit, the
// loss of the client's data stream, the end of the session, the stop of the worker.
//
// Threading: any thread. `send` is called on the waiting thread; it must not block.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::worker {

class HostCalls {
 public:
  using Send = std::function<void(SessionId session, wire::HostCallback callback)>;

  HostCalls(std::chrono::milliseconds limit, Send send) : limit_(limit), send_(std::move(send)) {}

  // Whose program calls, and where it runs.
  struct Caller {
    SessionId session;
    Ordinal gang;
    DeviceId device;
    int local_device = 0;
    uint32_t depth = 1;  // HostCallback.depth
    std::string client;  // its name, once it is known
  };

  // Waits for the reply, and copies its results to their places. `unwanted`: why the gang needs none any more, else OK.
  // It is asked under the lock, too, and a FailGang that comes after that ends the wait; it must not call this object.
  // Errors: those of `unwanted`; the client's own; DEADLINE_EXCEEDED after the limit; RESOURCE_EXHAUSTED: operands or
  // results over kBytesMax; INVALID_ARGUMENT: results of other sizes; those of Fail.
  absl::Status Call(const Caller& caller, const device::HostCall& call,
                    const std::function<absl::Status()>& unwanted) GANGWAY_EXCLUDES(mutex_);

  void OnReply(SessionId session, wire::HostCallbackReply reply) GANGWAY_EXCLUDES(mutex_);

  // The name of the session's client, for what waits for it.
  void Name(SessionId session, const std::string& client) GANGWAY_EXCLUDES(mutex_);
  // Ends what waits for the session.
  void Fail(SessionId session, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // Ends what members of the gang wait for.
  void FailGang(Ordinal gang, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // Ends everything, and all later calls at once.
  void Stop(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

  // One of the calls that wait, per local device.
  std::map<int, Caller> Waiting() const GANGWAY_EXCLUDES(mutex_);

  static constexpr uint64_t kBytesMax = uint64_t{500} << 20;  // operands or results of one call

 private:
  struct Pending {
    Caller caller;
    bool done = false;
    absl::Status status;
    wire::HostCallbackReply reply;
  };

  template <typename Filter>
  void EndAll(Filter filter, const absl::Status& why) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (auto& [call, pending] : pending_)
      if (!pending.done && filter(pending.caller)) End(pending, why);
    changed_.NotifyAll();
  }
  static void End(Pending& pending, const absl::Status& status) {
    pending.done = true;
    pending.status = status;
  }

  const std::chrono::milliseconds limit_;
  const Send send_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t next_call_ GANGWAY_GUARDED_BY(mutex_) = 1;
  absl::Status stopped_ GANGWAY_GUARDED_BY(mutex_);
  std::map<uint64_t, Pending> pending_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_HOST_CALLS_H_
