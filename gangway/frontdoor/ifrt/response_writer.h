// Sends the responses of a session. Requests are answered in any order, from any thread; the client
// matches responses to requests by op_id.
#ifndef GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_
#define GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/xla/ifrt_service.grpc.pb.h"

namespace gangway::ifrt {

using ::xla::ifrt::proxy::IfrtRequest;
using ::xla::ifrt::proxy::IfrtResponse;

// kSoon: an answer that no client waits for. It is sent with the next kAtOnce answer, with 63
// others, or within some milliseconds, so that many answers share one network message.
enum class Urgency { kAtOnce, kSoon };

class Replies {
 public:
  virtual ~Replies() = default;
  // Never blocks. Thread-safe.
  virtual void Send(IfrtResponse response, Urgency urgency = Urgency::kAtOnce) = 0;
};

// A response to `op_id` whose body is still to be set, and one that is an error.
IfrtResponse ReplyTo(uint64_t op_id);
IfrtResponse ErrorReply(uint64_t op_id, const absl::Status& status);

// Writes to a session's stream, one message in flight: the sender writes itself when the stream is
// idle, and messages that queue up during a write are coalesced. A client that does not read makes
// the queue grow; at `queue_max` the session is ended (TM-2). Thread-safe.
class ResponseWriter final : public Replies {
 public:
  // Starts one write; Written is called when it has completed.
  using Write = std::function<void(const IfrtResponse&, const grpc::WriteOptions&)>;
  using Cancel = std::function<void()>;    // ends the stream
  using CallSoon = std::function<void()>;  // schedules Flush within some milliseconds

  ResponseWriter(Write write, Cancel cancel, CallSoon call_soon, size_t queue_max)
      : write_(std::move(write)),
        cancel_(std::move(cancel)),
        call_soon_(std::move(call_soon)),
        queue_max_(queue_max) {}

  void Send(IfrtResponse response, Urgency urgency) override GANGWAY_EXCLUDES(mutex_);
  void Flush() GANGWAY_EXCLUDES(mutex_);
  void Written(bool ok) GANGWAY_EXCLUDES(mutex_);

  // Drops later responses, and waits until the last write has completed; cancels the stream after
  // `limit`.
  void Drain(std::chrono::seconds limit) GANGWAY_EXCLUDES(mutex_);

 private:
  // The next response to write; none if a write is in flight, the queue is empty or the stream is
  // broken.
  std::optional<IfrtResponse> TakeLocked(grpc::WriteOptions& options) GANGWAY_REQUIRES(mutex_);

  const Write write_;
  const Cancel cancel_;
  const CallSoon call_soon_;
  const size_t queue_max_;
  Mutex mutex_;
  CondVar idle_;
  std::deque<IfrtResponse> queue_ GANGWAY_GUARDED_BY(mutex_);
  bool soon_ GANGWAY_GUARDED_BY(mutex_) = false;  // Flush will be called
  bool writing_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closing_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool broken_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_RESPONSE_WRITER_H_
