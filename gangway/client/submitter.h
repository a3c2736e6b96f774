// Submitter: what goes to the controller, in the order of submission, and what is known of its end. Threads append
// operations to one pending batch. On an idle link they send it themselves; on a busy link the client's loop sends the
// accumulated batch as one frame. A caller sends a few operations at once, those of a burst travel together: the more
// of them the longer nothing has waited for one, which sends what is held.
//
// It composes the batches (op_batches.h), what is captured of them (capture.h), the pace
// (batch_pace.h), the sending end of the control link (control_sender.h), the nodes that have not ended (node_ends.h)
// and the looks for their ends (end_looks.h). It keeps the callers that wait for room among these nodes (TM-2), and the
// tasks that are to run on the loop, which also run during the shutdown.
//
// Threading: thread-safe; what says so, on the loop only. The functions that Append and WithLast take run under its
// lock. Below it, only Activity's is taken. No callback runs under it.
//
// Failure: what is appended to a lost session is refused with the reason of the loss, and `ended` is told of it.
#ifndef GANGWAY_CLIENT_SUBMITTER_H_
#define GANGWAY_CLIENT_SUBMITTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/batch_pace.h"
#include "gangway/client/capture.h"
#include "gangway/client/client.h"
#include "gangway/client/control_sender.h"
#include "gangway/client/end_looks.h"
#include "gangway/client/node_ends.h"
#include "gangway/client/op_batches.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class Submitter {
 public:
  struct Options {
    EventLoop* loop = nullptr;
    Activity* activity = nullptr;
    uint64_t pending_max = 0;      // TM-2
    bool reports_ends = false;     // Client::reports_ends
    bool captures_bursts = false;  // captured_bursts.h
    // Takes what is to travel beside the batch; its result sends that, after the batch. Both on the loop.
    std::function<std::function<void()>()> take_beside;
    // The link took a frame no longer, so frames are lost. On the loop.
    std::function<void(const absl::Status& why)> on_failed;
    std::function<Clock::time_point()> now = &Clock::now;  // that the pace goes by
  };

  // Declared before the lock under which an operation is appended, it sends the operation after that lock is released,
  // on the caller's thread (a link's Send never blocks). This saves each call a thread handoff.
  class Sending {
   public:
    explicit Sending(Submitter& submitter, Urgency urgency = Urgency::kBatched)
        : submitter_(submitter), urgency_(urgency) {}
    ~Sending() { submitter_.SendOrWake(urgency_); }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

   private:
    Submitter& submitter_;
    const Urgency urgency_;
  };

  explicit Submitter(Options options) : options_(std::move(options)) {}

  // Frames go to `link` from now on; `hello` at once.
  void Open(std::shared_ptr<transport::Link> link, wire::Frame hello) GANGWAY_EXCLUDES(mutex_);
  // What frames carry from now on. On the loop.
  void SetSession(uint64_t epoch, SessionId session) { sender_.SetSession(epoch, session); }

  bool reports_ends() const { return options_.reports_ends; }  // Client::reports_ends

  // A new number, of an executable, fetch, question or await; never 0.
  template <typename Number>
  Number NewId() {
    return Number(next_id_.fetch_add(1, std::memory_order_relaxed));
  }

  // Appends an operation of `nodes` nodes, which `fill` makes; a Sending or SendNow sends it. `ended` runs at the end
  // of its nodes, with their first failure; empty unless the session reports ends. `fill` may take the operation's
  // number as well, that of the last of its nodes. Not OK: why the session is lost, and `fill` did not run.
  template <typename Fill>
  absl::Status Append(uint64_t nodes, StatusCallback ended, Fill fill) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return Refuse(std::move(ended));
    const OperationId operation{nodes == 0 ? 0 : submitted_ + nodes};
    wire::Op& op = *NewOp(nodes, std::move(ended));
    if constexpr (std::is_invocable_v<Fill&, wire::Op&, OperationId>) {
      fill(op, operation);
    } else {
      fill(op);
    }
    capture_.NoteFilled();
    return absl::OkStatus();
  }

  // Likewise, but lets `join` add the nodes to the last operation, if no frame has taken that yet; if `join` returns
  // false, or there is none, `fill` makes an operation. Both take the number.
  template <typename Join, typename Fill>
  absl::Status JoinOrAppend(uint64_t nodes, StatusCallback ended, Join join, Fill fill)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return Refuse(std::move(ended));
    const OperationId operation{nodes == 0 ? 0 : submitted_ + nodes};
    wire::Op* const last = capture_.LastOp();
    if (last == nullptr || !join(*last, operation)) {
      fill(*NewOp(nodes, std::move(ended)), operation);
      capture_.NoteFilled();
    } else {
      CountNodes(nodes, std::move(ended));
    }
    return absl::OkStatus();
  }

  // Lets `join` add to the last operation, if no frame has taken that yet; false: there is none, or `join` says so.
  template <typename Join>
  bool WithLast(Join join) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    wire::Op* const last = capture_.LastOp();
    return last != nullptr && join(*last);
  }

  // As in Client.
  void BeginProgram() GANGWAY_EXCLUDES(mutex_);
  ProgramCapture EndProgram() GANGWAY_EXCLUDES(mutex_);
  void OnRegistered(const wire::Registered& registered) GANGWAY_EXCLUDES(mutex_);  // on the loop

  // Sends what was appended, on this thread.
  void SendNow() GANGWAY_EXCLUDES(mutex_);
  void SendBatches() GANGWAY_EXCLUDES(mutex_);
  // Sends a frame that belongs to no order, behind what was appended.
  void SendQuery(wire::Frame frame) GANGWAY_EXCLUDES(mutex_);

  // Whether operations wait for others to be sent with; what belongs to them waits for FlushSoon, too.
  bool HoldsBurst() const GANGWAY_EXCLUDES(mutex_);
  void FlushSoon() GANGWAY_EXCLUDES(mutex_);
  // The loop flushes.
  void Wake() GANGWAY_EXCLUDES(mutex_);
  void Flush() GANGWAY_EXCLUDES(mutex_);  // on the loop
  void OnWritable() GANGWAY_EXCLUDES(mutex_);

  // Runs `task` on the loop.
  void Defer(std::function<void()> task) GANGWAY_EXCLUDES(mutex_);
  void RunDeferred() GANGWAY_EXCLUDES(mutex_);  // on the loop

  // What has ended. On the loop.
  void OnProgress(const wire::Progress& progress) GANGWAY_EXCLUDES(mutex_);
  // As in Client.
  void BeginLook() GANGWAY_EXCLUDES(mutex_);
  void EndLook() GANGWAY_EXCLUDES(mutex_);
  void LookFor(OperationId operation) GANGWAY_EXCLUDES(mutex_);

  uint64_t pending() const;
  void WhenRoom(std::function<void()> on_room) GANGWAY_EXCLUDES(mutex_);

  // Why nothing more is submitted; OK: it is.
  absl::Status lost() const GANGWAY_EXCLUDES(mutex_);
  // From now on, nothing is submitted. False: it was lost before.
  bool Lose(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // After Lose: closes the link; then the callbacks of all that has not ended run. Both on the loop.
  void Close(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  void EndAll(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

  // The control link; null: it is closed.
  std::shared_ptr<transport::Link> link() const GANGWAY_EXCLUDES(mutex_);

 private:
  absl::Status Refuse(StatusCallback ended) GANGWAY_REQUIRES(mutex_);
  wire::Op* NewOp(uint64_t nodes, StatusCallback ended) GANGWAY_REQUIRES(mutex_);
  void CountNodes(uint64_t nodes, StatusCallback ended) GANGWAY_REQUIRES(mutex_);
  void NoteEnds(uint64_t nodes, StatusCallback ended) GANGWAY_REQUIRES(mutex_);
  void DeferLocked(std::function<void()> task) GANGWAY_REQUIRES(mutex_);
  void SendOrWake(Urgency urgency) GANGWAY_EXCLUDES(mutex_);
  void FlushWithinLocked(std::chrono::microseconds interval) GANGWAY_REQUIRES(mutex_);
  void WakeLocked() GANGWAY_REQUIRES(mutex_);
  void TellRoom() GANGWAY_EXCLUDES(mutex_);

  const Options options_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint64_t> submitted_{0};  // nodes
  std::atomic<uint64_t> ended_{0};

  mutable Mutex mutex_;
  absl::Status lost_ GANGWAY_GUARDED_BY(mutex_);
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);
  OpBatches batches_ GANGWAY_GUARDED_BY(mutex_);
  Capture capture_ GANGWAY_GUARDED_BY(mutex_){&batches_, [this] { return next_id_.fetch_add(1); }};
  BatchPace pace_ GANGWAY_GUARDED_BY(mutex_);
  bool sending_ GANGWAY_GUARDED_BY(mutex_) = false;  // a thread is in SendBatches
  bool flush_posted_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> flush_at_ GANGWAY_GUARDED_BY(mutex_);  // a timer will flush
  std::vector<std::function<void()>> deferred_ GANGWAY_GUARDED_BY(mutex_);
  NodeEnds ends_ GANGWAY_GUARDED_BY(mutex_);
  EndLooks looks_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> room_ GANGWAY_GUARDED_BY(mutex_);

  ControlSender sender_;  // on link_; used without the lock
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_SUBMITTER_H_
