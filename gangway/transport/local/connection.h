// Connection: one end of a link over a unix socket. A sending thread writes into the socket itself, without a thread
// handoff; when the socket is full, the transport's thread writes the rest once there is room. The first frame that a
// round of an event loop sends leaves at once, its other frames together when the round ends. Where the events go to an
// EventLoop, that loop reads the socket itself; for any other executor, the transport's thread does. Reading pauses
// while more than a limit is pending at the receiver.
//
// Threading: Send, Close, End and Cancel from any thread, never blocking. OnReady and OnTick on the IoThread, which
// greets, writes what is left over, and ends the connection; ReadEnd::OnReady on the loop. Both report each change once
// (edge-triggered epoll), and again when its SocketWatches are told so. The LinkSet keeps the Connection and its socket
// until it has ended; handles then point to an inert object. A loop may end before its links do: the bytes that arrive
// stay in the socket. Failure: an end without a Close from the peer is UNAVAILABLE, bytes that are not a Batch are
// INVALID_ARGUMENT. A peer that is silent for a minute while this end reads is lost, so an end that can write sends a
// message at least every 30 s (beats.h).
#ifndef GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_
#define GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/trace.h"
#include "gangway/transport/event_queue.h"
#include "gangway/transport/link_set.h"
#include "gangway/transport/local/beats.h"
#include "gangway/transport/local/greeting.h"
#include "gangway/transport/local/io_thread.h"
#include "gangway/transport/local/message_reader.h"
#include "gangway/transport/local/outgoing_message.h"
#include "gangway/transport/local/round_sends.h"
#include "gangway/transport/local/socket_watches.h"
#include "gangway/transport/send_queue.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

class Connection;
using ConnectionSet = LinkSet<Connection>;

class Connection final : public IoThread::Watched, public std::enable_shared_from_this<Connection> {
 public:
  // `io` outlives this object's time in the set.
  Connection(std::shared_ptr<ConnectionSet> set, IoThread* io, FileDescriptor socket,
             LinkOptions options, size_t message_bytes_max, std::string peer_address);

  void Init();                    // once, when a shared_ptr owns it
  void Start(LinkEvents events);  // once; before Serve at a connecting end
  // Called once, after the set has it: the thread begins to serve it. An accepting end passes
  // `on_greeted`, which the thread calls when the peer's greeting has arrived, and which calls
  // Start.
  void Serve(std::function<void(const std::shared_ptr<Connection>&)> on_greeted = {})
      GANGWAY_EXCLUDES(mutex_);

  // One frame: `parts` follow `frame`.
  absl::Status Send(wire::Frame frame, FrameParts parts) GANGWAY_EXCLUDES(mutex_);
  size_t queued_bytes() const GANGWAY_NO_ANALYSIS { return queue_.bytes(); }
  size_t writable_bytes() const { return options_.writable_bytes(); }
  size_t frame_bytes_max() const { return FrameBytesMax(message_bytes_max_); }
  const Peer& peer() const { return peer_; }

  // Close: the owner closes, and no event follows. End: closes too, and reports on_closed(status)
  // to the owner. Cancel: closes at once and drops what is queued.
  void Close(const absl::Status& reason) GANGWAY_EXCLUDES(mutex_);
  void End(const absl::Status& status) GANGWAY_EXCLUDES(mutex_);
  void Cancel() GANGWAY_EXCLUDES(mutex_);

  // Both on the IoThread.
  void OnReady(uint32_t epoll_events) override GANGWAY_EXCLUDES(mutex_);
  Clock::time_point OnTick(Clock::time_point now) override GANGWAY_EXCLUDES(mutex_);

 private:
  enum class Tell { kOwner, kNobody };
  enum class Turn { kGoOn, kOver };
  enum class Life {
    kOpen,
    kClosing,  // this side closes: input is discarded
    kGone,     // it has ended
  };

  // What the loop's poller watches.
  class ReadEnd;

  void BeginClose(const absl::Status& reason, Tell tell) GANGWAY_EXCLUDES(mutex_);
  void ShutdownLocked() GANGWAY_REQUIRES(mutex_);
  void BreakLocked() GANGWAY_REQUIRES(mutex_);
  void CloseSocketLocked() GANGWAY_REQUIRES(mutex_);
  void MoveReadsLocked() GANGWAY_REQUIRES(mutex_);

  bool LeaveToRoundEndLocked() GANGWAY_REQUIRES(mutex_);
  void Flush() GANGWAY_EXCLUDES(mutex_);
  void Write() GANGWAY_EXCLUDES(mutex_);
  Turn NextOutgoing() GANGWAY_EXCLUDES(mutex_);
  void StopWriting(bool wait_for_room) GANGWAY_EXCLUDES(mutex_);
  void OnWriteError(int error) GANGWAY_EXCLUDES(mutex_);
  void ResumeWriting() GANGWAY_EXCLUDES(mutex_);

  void Read(uint32_t epoll_events) GANGWAY_EXCLUDES(mutex_);
  void ReadTurn(bool up_to_the_end) GANGWAY_EXCLUDES(mutex_);
  Turn ReadOnce(bool up_to_the_end, size_t* turn_bytes) GANGWAY_EXCLUDES(mutex_);
  Turn OnGreeting(std::string_view bytes) GANGWAY_EXCLUDES(mutex_);
  void OnMessage(std::string_view message) GANGWAY_EXCLUDES(mutex_);
  void ResumeReading() GANGWAY_EXCLUDES(mutex_);
  bool may_read() const GANGWAY_EXCLUDES(mutex_);
  void Beat() GANGWAY_EXCLUDES(mutex_);
  void Lose(std::string_view why) GANGWAY_EXCLUDES(mutex_);
  void LetGo(const absl::Status& end) GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<ConnectionSet> set_;
  IoThread* const io_;  // not used once kGone
  const LinkOptions options_;
  const size_t message_bytes_max_;
  const Peer peer_;
  const uint32_t trace_link_ = NextTraceLink();
  std::shared_ptr<EventQueue> events_;
  Beats beats_;

  // Accessed by the IoThread only; on_greeted_ by the reader, too, once it is empty.
  std::function<void(const std::shared_ptr<Connection>&)> on_greeted_;  // empty: greeted
  IncomingGreeting greeting_;

  MessageReader reader_;      // accessed only by the thread that has set reading_
  OutgoingMessage outgoing_;  // accessed only by the thread that has set writing_

  mutable Mutex mutex_;
  FileDescriptor socket_;  // closed when kGone, not writing_ and not reading_
  SendQueue queue_ GANGWAY_GUARDED_BY(mutex_);
  RoundSends rounds_ GANGWAY_GUARDED_BY(mutex_);
  SocketWatches watches_ GANGWAY_GUARDED_BY(mutex_);
  Life life_ GANGWAY_GUARDED_BY(mutex_) = Life::kOpen;
  bool reading_ GANGWAY_GUARDED_BY(mutex_) = false;  // a thread is reading
  bool writing_ GANGWAY_GUARDED_BY(mutex_) = false;  // a thread is writing
  bool paused_ GANGWAY_GUARDED_BY(mutex_) = false;   // reading is paused
  bool broken_ GANGWAY_GUARDED_BY(mutex_) = false;   // nothing more can be sent
  absl::Status write_error_ GANGWAY_GUARDED_BY(mutex_);
  Clock::time_point close_due_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_
