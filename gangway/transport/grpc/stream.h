// Stream: one end of a link over a bidirectional gRPC stream. One message is in flight at a time;
// on an idle stream the sender itself starts the write. Reading pauses while more than a limit is
// pending at the receiver.
//
// Threading: Send, Close, End from any thread; Completed on the completion thread only. The
// StreamSet keeps a Stream alive until gRPC has completed every operation (`operations_` is 0 and
// the call has finished); then the call is released, and handles point to an inert object. Failure:
// a call that ends without a Close from the peer is UNAVAILABLE; bytes that are not a Batch are
// INVALID_ARGUMENT.
#ifndef GANGWAY_TRANSPORT_GRPC_STREAM_H_
#define GANGWAY_TRANSPORT_GRPC_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/completion_thread.h"
#include "gangway/base/mutex.h"
#include "gangway/base/trace.h"
#include "gangway/transport/event_queue.h"
#include "gangway/transport/grpc/stream_call.h"
#include "gangway/transport/link_set.h"
#include "gangway/transport/send_queue.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class Stream;
using StreamSet = LinkSet<Stream>;  // of one completion thread, with operations in gRPC

class Stream : public StreamCall, public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue, LinkOptions options,
         size_t message_bytes_max);
  void Init();  // once, when a shared_ptr owns it

  // One frame: `parts` follow `frame`.
  absl::Status Send(wire::Frame frame, FrameParts parts) GANGWAY_EXCLUDES(mutex_);
  size_t queued_bytes() const GANGWAY_NO_ANALYSIS { return queue_.bytes(); }
  size_t writable_bytes() const { return options_.writable_bytes(); }
  size_t frame_bytes_max() const { return FrameBytesMax(message_bytes_max_); }
  const Peer& peer() const { return peer_; }
  std::string certificate() const GANGWAY_EXCLUDES(mutex_);  // PEM; empty: none

  virtual void Admit() {}  // Link::Admit

  // The policy's answer about the peer, before Start.
  void SetCertificateName(std::string name) { peer_.certificate = std::move(name); }

  // Close: the owner closes, and no event follows. End: closes too, and reports on_closed(status)
  // to the owner.
  void Close(const absl::Status& reason) GANGWAY_EXCLUDES(mutex_);
  void End(const absl::Status& status) GANGWAY_EXCLUDES(mutex_);
  void Cancel() GANGWAY_EXCLUDES(mutex_);

  // Called once; reading begins.
  void Start(LinkEvents events) GANGWAY_EXCLUDES(mutex_);

  void Completed(Operation operation, bool ok) GANGWAY_EXCLUDES(mutex_);

 protected:
  struct Tag final : Completion {
    void Run(bool ok) override { stream->Completed(operation, ok); }
    Stream* stream = nullptr;
    Operation operation;
  };

  void* TagOf(Operation operation) {
    return static_cast<Completion*>(&tags_[static_cast<int>(operation)]);
  }
  void CountOperation() GANGWAY_EXCLUDES(mutex_);
  void BeginFinish() GANGWAY_EXCLUDES(mutex_);
  bool IsShut() const { return set_->shut(); }  // its transport or listener is ending

  void SetCertificate(std::string pem) GANGWAY_EXCLUDES(mutex_);

  Peer peer_;  // set before the stream is shared

 private:
  enum class Tell { kOwner, kNobody };
  enum class Reading {
    kNotStarted,
    kIdle,
    kInFlight,
    kEnded,  // nothing more arrives
  };
  enum class Stage {
    kOpen,
    kFinishing,  // the operation that ends the call has started
    kFinished,   // it has completed
    kReleased,   // so has everything else
  };
  struct Write {
    grpc::ByteBuffer message;
    bool last = false;
  };

  bool TakeWriteLocked(Write* write) GANGWAY_REQUIRES(mutex_);
  void RunWrite(const Write& write);
  bool TakeReadLocked() GANGWAY_REQUIRES(mutex_);
  void EndReadLocked() GANGWAY_REQUIRES(mutex_);
  bool TakeFinishLocked() GANGWAY_REQUIRES(mutex_);
  void CancelLocked() GANGWAY_REQUIRES(mutex_);
  void BreakLocked() GANGWAY_REQUIRES(mutex_);
  void BeginClose(const absl::Status& reason, Tell tell) GANGWAY_EXCLUDES(mutex_);
  void ResumeReading() GANGWAY_EXCLUDES(mutex_);
  void OnRead(bool ok);
  void OnPeerClosed(const std::string& reason);
  void OnWrite(bool ok);
  void OnFinish();
  void Settle() GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<StreamSet> set_;
  grpc::CompletionQueue* const completions_;
  const LinkOptions options_;
  const size_t message_bytes_max_;
  const uint32_t trace_link_ = NextTraceLink();
  Tag tags_[kOperations];
  std::shared_ptr<EventQueue> events_;
  grpc::ByteBuffer incoming_;  // of the read in flight

  mutable Mutex mutex_;
  std::string certificate_ GANGWAY_GUARDED_BY(mutex_);
  SendQueue queue_ GANGWAY_GUARDED_BY(mutex_);
  int operations_ GANGWAY_GUARDED_BY(mutex_) = 0;  // that gRPC still has to complete
  Reading reading_ GANGWAY_GUARDED_BY(mutex_) = Reading::kNotStarted;
  Stage stage_ GANGWAY_GUARDED_BY(mutex_) = Stage::kOpen;
  bool writing_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closing_ GANGWAY_GUARDED_BY(mutex_) = false;  // by this side: input is discarded
  bool broken_ GANGWAY_GUARDED_BY(mutex_) = false;   // nothing more can be sent
  std::optional<grpc::Alarm> deadline_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_STREAM_H_
