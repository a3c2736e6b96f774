// Connection: one end of a link over a unix socket. A sending thread writes into the socket itself, without a thread
// handoff; when the socket is full, the transport's thread writes the rest once there is room. The first frame that a
// round of an event loop sends leaves at once, its other frames together when the round ends. Where the events go to an
// EventLoop, that loop reads the socket itself; for any other executor, the transport's thread does. Reading pauses
// while more than a limit is pending at the receiver.
//
// Threading: Send, Close, End and Cancel from any thread, never blocking. OnReady and OnTick on the IoThread, which
// greets, writes what is left over, and ends the connection; ReadEnd::OnReady on the loop. Both report each change once
// (edge-triggered epoll), and again after WatchWritesLocked and WatchReadsLocked. The LinkSet keeps the Connection and
// its socket until it has ended; handles then point to an inert object. A loop may end before its links do: the bytes
// that arrive stay in the socket. Failure: an end without a Close from the peer is UNAVAILABLE, bytes that are not a
// Batch are INVALID_ARGUMENT. A peer that is silent for a minute while this end reads is lost, so an end that can write
// sends a message at least every 30 s.
#ifndef GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_
#define GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"
#include "gangway/base/trace.h"
#include "gangway/transport/event_queue.h"
#include "gangway/transport/link_set.h"
#include "gangway/transport/local/io_thread.h"
#include "gangway/transport/local/message_reader.h"
#include "gangway/transport/outbox.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// Sent first by both ends. The number is the version of the format that follows.
inline constexpr std::string_view kGreeting = "gangway\x01";

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
  size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
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
  using Round = std::pair<const EventLoop*, uint64_t>;  // a loop and its round

  // What the loop's poller watches.
  class ReadEnd;

  // The message that is being written.
  struct Outgoing {
    std::array<char, kMessageHeaderBytes> header;
    Outbox::Message message;
    std::vector<iovec> left;  // of header and pieces
    size_t first = 0;         // of left
  };

  void BeginClose(const absl::Status& reason, Tell tell) GANGWAY_EXCLUDES(mutex_);
  void ShutdownLocked() GANGWAY_REQUIRES(mutex_);
  void BreakLocked() GANGWAY_REQUIRES(mutex_);
  void CloseSocketLocked() GANGWAY_REQUIRES(mutex_);
  void WatchWritesLocked() GANGWAY_REQUIRES(mutex_);
  void WatchReadsLocked() GANGWAY_REQUIRES(mutex_);
  void MoveReadsLocked() GANGWAY_REQUIRES(mutex_);
  void ForgetReadsLocked() GANGWAY_REQUIRES(mutex_);
  bool HasUnreadLocked() const GANGWAY_REQUIRES(mutex_);

  bool LeaveToRoundEndLocked() GANGWAY_REQUIRES(mutex_);
  void Flush() GANGWAY_EXCLUDES(mutex_);
  void Write() GANGWAY_EXCLUDES(mutex_);
  Turn NextOutgoing() GANGWAY_EXCLUDES(mutex_);
  void PrepareOutgoing(Outbox::Message message);
  void Sent(size_t bytes);
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
  IoThread* const io_;  // not used once gone_
  const uint64_t id_;
  const LinkOptions options_;
  const size_t message_bytes_max_;
  const Peer peer_;
  const uint32_t trace_link_ = NextTraceLink();
  std::shared_ptr<EventQueue> events_;
  std::atomic<size_t> queued_bytes_{0};
  std::atomic<bool> sent_{false};  // since the last beat

  std::atomic<bool> received_{false};  // since the last beat

  // Accessed by the IoThread only; on_greeted_ by the reader, too, once it is empty.
  std::function<void(const std::shared_ptr<Connection>&)> on_greeted_;  // empty: greeted
  std::string greeting_;
  int silent_beats_ = 0;
  Clock::time_point next_beat_;

  MessageReader reader_;  // accessed only by the thread that has set reading_
  Outgoing outgoing_;     // accessed only by the thread that has set writing_

  mutable Mutex mutex_;
  FileDescriptor socket_;  // closed when gone_, not writing_ and not reading_
  Outbox outbox_ GANGWAY_GUARDED_BY(mutex_);
  bool served_ GANGWAY_GUARDED_BY(mutex_) = false;
  // Of the loop that reads; null: the IoThread reads. read_id_ is 0 before that loop begins and after it has ended.
  std::shared_ptr<Poller> read_by_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t read_id_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool reading_ GANGWAY_GUARDED_BY(mutex_) = false;  // a thread is reading
  bool writing_ GANGWAY_GUARDED_BY(mutex_) = false;  // a thread is writing
  Round sent_in_ GANGWAY_GUARDED_BY(mutex_);         // the last in which a frame went at once
  Round flushed_after_ GANGWAY_GUARDED_BY(mutex_);   // the last that ends with a Flush
  bool blocked_ GANGWAY_GUARDED_BY(mutex_) = false;  // the socket is full
  bool paused_ GANGWAY_GUARDED_BY(mutex_) = false;   // reading is paused
  bool above_writable_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closing_ GANGWAY_GUARDED_BY(mutex_) = false;  // by this side: input is discarded
  bool broken_ GANGWAY_GUARDED_BY(mutex_) = false;   // nothing more can be sent
  bool gone_ GANGWAY_GUARDED_BY(mutex_) = false;     // it has ended
  absl::Status write_error_ GANGWAY_GUARDED_BY(mutex_);
  Clock::time_point close_due_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_CONNECTION_H_
