// FrameSender: the sending end of a link. It completes each frame with the worker that the link belongs to and with a
// number, counts what the link has taken, and sends nothing more once it is closed.
//
// Threading: any thread; frames are numbered in the order in which they leave. Failure: a frame that the link does not
// take has no number, and is the caller's to send again.
#ifndef GANGWAY_TRANSPORT_BULK_FRAME_SENDER_H_
#define GANGWAY_TRANSPORT_BULK_FRAME_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class FrameSender {
 public:
  // What all frames of a link have in common.
  struct Stamp {
    uint64_t epoch = 0;       // of the controller; 0 between workers
    Incarnation incarnation;  // of the worker that answers the link's Hello
  };
  enum class Bytes : uint8_t { kUncounted, kCounted };
  struct Progress {
    size_t queued = 0;   // bytes that the link has not handed to the network
    uint64_t taken = 0;  // bytes of all frames so far, if they are counted
  };

  FrameSender(std::shared_ptr<Link> link, const Stamp& stamp, Bytes bytes);

  // The errors of Link::Send; UNAVAILABLE after Close. `taken` runs when the link has taken the frame, before any later
  // frame leaves and before a concurrent Close returns.
  [[nodiscard]] absl::Status Send(
      wire::Frame frame, absl::FunctionRef<void()> taken = [] {}) GANGWAY_EXCLUDES(mutex_);

  Progress progress() const GANGWAY_EXCLUDES(mutex_);
  // More than Link::writable_bytes is queued: on_writable follows. False after Close.
  bool is_full() const GANGWAY_EXCLUDES(mutex_);

  // Closes the link and drops it. Again: no effect.
  void Close(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

 private:
  const Stamp stamp_;
  const Bytes bytes_;
  mutable Mutex mutex_;
  std::shared_ptr<Link> link_ GANGWAY_GUARDED_BY(mutex_);  // null: closed
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t taken_bytes_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_FRAME_SENDER_H_
