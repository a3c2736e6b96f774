// ControlSender: the sending end of a session's control link. It numbers the frames from the Hello on, and writes the
// controller's epoch into them.
//
// Threading: thread-safe; its lock is held while a frame goes to the link, and no other one of the client is taken with
// it. SetSession comes before anything but the Hello is sent.
// Failure: the errors of transport::PacedSender, after which frames are lost. Without a link, frames are dropped.
#ifndef GANGWAY_CLIENT_CONTROL_SENDER_H_
#define GANGWAY_CLIENT_CONTROL_SENDER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class ControlSender {
 public:
  void Open(std::shared_ptr<transport::Link> link) GANGWAY_EXCLUDES(mutex_);
  // What frames carry from now on.
  void SetSession(uint64_t epoch, SessionId session) GANGWAY_EXCLUDES(mutex_);
  uint64_t epoch() const GANGWAY_EXCLUDES(mutex_);

  absl::Status Send(wire::Frame frame) GANGWAY_EXCLUDES(mutex_);
  absl::Status OnWritable() GANGWAY_EXCLUDES(mutex_);
  void Close() GANGWAY_EXCLUDES(mutex_);

 private:
  void Stamp(wire::Frame& frame) GANGWAY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<transport::PacedSender> sender_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ GANGWAY_GUARDED_BY(mutex_) = 0;
  SessionId session_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONTROL_SENDER_H_
