// ConfirmingSender: the sending end of an open link to a worker, and what is known of the uploads whose bytes it took.
// A link that is lost says nothing about the bytes that it had taken. So the worker is asked a question at times: the
// reply proves that all that was sent before the question has arrived.
//
// Threading: Send, queued_bytes and incarnation are for any thread, the rest belongs to the client's event loop.
// Failure: after the loss of the link, the uploads in doubt are those that Unproven names.
#ifndef GANGWAY_CLIENT_CONFIRMING_SENDER_H_
#define GANGWAY_CLIENT_CONFIRMING_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/frame_sender.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class ConfirmingSender {
 public:
  // `incarnation`: of the worker.
  ConfirmingSender(std::shared_ptr<transport::FrameSender> frames, Incarnation incarnation)
      : frames_(std::move(frames)), incarnation_(incarnation) {}

  // Notes the upload of which the frame has bytes. The errors of FrameSender::Send.
  absl::Status Send(wire::Frame frame) GANGWAY_EXCLUDES(mutex_);
  size_t queued_bytes() const { return frames_->progress().queued; }
  Incarnation incarnation() const { return incarnation_; }

  // Asks, unless a question has been sent, and has the link await the reply.
  void Ask(transport::BulkLink& link, Clock::time_point now) GANGWAY_EXCLUDES(mutex_);
  // A reply to the question with this number has come; the link awaits no more if that is the latest.
  void OnReply(transport::BulkLink& link, uint64_t number);

  // The uploads of which it has taken bytes that are not known to have arrived.
  std::set<UploadId> Unproven() const GANGWAY_EXCLUDES(mutex_);
  // Bytes are in doubt, or a reply is awaited.
  bool IsBusy() const GANGWAY_EXCLUDES(mutex_);

 private:
  enum class Asked : uint8_t { kNothing, kUnsent, kSent };
  struct Question {
    Asked state = Asked::kNothing;  // kUnsent: the link took no more
    uint64_t number = 0;            // once it is sent
    std::vector<UploadId> uploads;  // of which bytes were sent before it
  };

  const std::shared_ptr<transport::FrameSender> frames_;
  const Incarnation incarnation_;
  Question question_;
  mutable Mutex mutex_;
  // Uploads of which the link has taken bytes since the last question; repeated ones.
  std::vector<UploadId> unproven_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONFIRMING_SENDER_H_
