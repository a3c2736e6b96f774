// Implementation of connection.h.
#include "gangway/transport/local/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/poller.h"
#include "gangway/base/status.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {
namespace {

constexpr size_t kPendingBytesMax = 64 << 20;  // read and not yet taken by the receiver
constexpr size_t kTurnBytes = 4 << 20;         // read or written for one link before other links
constexpr uint32_t kPeerLeft = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

}  // namespace

class Connection::ReadEnd final : public Poller::Watched {
 public:
  explicit ReadEnd(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  void OnReady(uint32_t epoll_events) override { connection_->Read(epoll_events); }

 private:
  const std::shared_ptr<Connection> connection_;
};

Connection::Connection(std::shared_ptr<ConnectionSet> set, IoThread* io, FileDescriptor socket,
                       LinkOptions options, size_t message_bytes_max, std::string peer_address)
    : set_(std::move(set)),
      io_(io),
      options_(options),
      message_bytes_max_(message_bytes_max),
      peer_{.address = std::move(peer_address), .authenticated = false},
      beats_(Clock::now()),
      reader_(message_bytes_max),
      socket_(std::move(socket)),
      queue_(options, trace_link_),
      watches_(io, socket_.get()) {}

void Connection::Serve(std::function<void(const std::shared_ptr<Connection>&)> on_greeted) {
  on_greeted_ = std::move(on_greeted);
  io_->TickAt(beats_.next());
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = watches_.Begin(shared_from_this());
    if (status.ok() && !on_greeted_) MoveReadsLocked();
  }
  if (!status.ok()) LetGo(status);
}

void Connection::Init() {
  events_ = std::make_shared<EventQueue>([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->ResumeReading();
  });
}

void Connection::Start(LinkEvents events) {
  NameTrace(TraceNameOf::kLink, trace_link_, peer_.address);
  if (auto* loop = dynamic_cast<EventLoop*>(events.executor)) {
    auto poller = loop->poller();
    MutexLock lock(mutex_);
    if (poller.ok()) watches_.SetLoop(*std::move(poller));  // else the IoThread reads
  }
  events_->Start(std::move(events));
}

void Connection::MoveReadsLocked() {
  if (life_ == Life::kOpen) watches_.MoveReads(std::make_shared<ReadEnd>(shared_from_this()));
}

void Connection::CloseSocketLocked() {
  if (life_ == Life::kGone && !writing_ && !reading_) socket_.Reset();
}

// --- Sending ---

absl::Status Connection::Send(wire::Frame frame, FrameParts parts) {
  const size_t bytes = frame.ByteSizeLong() + BytesOf(parts);
  if (bytes > frame_bytes_max()) return TooLarge(peer_, bytes, message_bytes_max_);
  {
    MutexLock lock(mutex_);
    if (life_ == Life::kClosing || broken_) return LinkClosed(peer_, events_->end());
    GANGWAY_RETURN_IF_ERROR(queue_.Append(std::move(frame), parts, bytes, peer_));
    if (writing_ || watches_.awaits_room() || LeaveToRoundEndLocked()) return absl::OkStatus();
    writing_ = true;
  }
  Write();
  return absl::OkStatus();
}

// Other threads do not wait for the loop: their writes include the frames that wait.
bool Connection::LeaveToRoundEndLocked() {
  EventLoop* loop = EventLoop::Current();
  if (loop == nullptr) return false;
  const RoundSends::When when = rounds_.Note(loop, loop->round());
  if (when == RoundSends::When::kAskForRoundEnd)
    loop->AtRoundEnd([self = shared_from_this()] { self->Flush(); });
  return when != RoundSends::When::kNow;
}

void Connection::Flush() {
  {
    MutexLock lock(mutex_);
    rounds_.NoteRoundEnd();
    if (writing_ || watches_.awaits_room() || broken_ || queue_.empty()) return;
    writing_ = true;
  }
  Write();
}

// Runs on the thread that has set writing_. It stops after kTurnBytes, and the transport's thread
// continues.
void Connection::Write() {
  size_t turn_bytes = 0;
  while (true) {
    if (outgoing_.is_written() && NextOutgoing() == Turn::kOver) return;
    if (turn_bytes >= kTurnBytes) return StopWriting(/*wait_for_room=*/true);
    const OutgoingMessage::Written written = outgoing_.WriteTo(socket_.get());
    if (written.error == EAGAIN) return StopWriting(/*wait_for_room=*/true);
    if (written.error != 0) return OnWriteError(written.error);
    turn_bytes += written.bytes;
  }
}

// Prepares the next message when one is written. kOver: no message is left, and writing ends.
Connection::Turn Connection::NextOutgoing() {
  bool writable = false, over = false;
  Outbox::Message next;
  {
    MutexLock lock(mutex_);
    if (!broken_) writable = queue_.NoteWritten();
    over = broken_ || queue_.empty();
    if (over) {
      writing_ = false;
      if (life_ == Life::kClosing) ShutdownLocked();
      CloseSocketLocked();
    } else {
      next = queue_.Take();
    }
  }
  if (writable) events_->PushWritable();
  if (over) return Turn::kOver;
  outgoing_.Set(std::move(next));
  beats_.NoteSent();
  return Turn::kGoOn;
}

void Connection::StopWriting(bool wait_for_room) {
  MutexLock lock(mutex_);
  writing_ = false;
  CloseSocketLocked();
  if (life_ != Life::kGone && wait_for_room) watches_.AwaitRoom();
}

// The reading side reports why the link ends: the peer may have sent a reason before it left.
void Connection::OnWriteError(int error) {
  {
    MutexLock lock(mutex_);
    if (error != EPIPE && error != ECONNRESET)
      write_error_ = absl::UnavailableError(std::strerror(error));
    BreakLocked();
    ShutdownLocked();
  }
  StopWriting(/*wait_for_room=*/false);
}

void Connection::ResumeWriting() {
  {
    MutexLock lock(mutex_);
    if (!watches_.awaits_room() || life_ == Life::kGone) return;
    writing_ = true;
    watches_.StopAwaitingRoom();
  }
  Write();
}

// --- Receiving ---

void Connection::OnReady(uint32_t epoll_events) {
  if ((epoll_events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) ResumeWriting();
  bool let_go, reads;
  {
    MutexLock lock(mutex_);
    let_go = life_ == Life::kClosing && (epoll_events & (EPOLLHUP | EPOLLERR)) != 0;
    reads = life_ == Life::kOpen && !watches_.loop_reads();
  }
  if (let_go)
    return LetGo(absl::CancelledError("closed"));  // the owner was told, or wants no event
  if (!reads) return;
  const bool greeted = !on_greeted_;
  Read(epoll_events);
  if (greeted || on_greeted_) return;
  MutexLock lock(mutex_);
  MoveReadsLocked();
  // What came with the greeting has not been read.
  if (life_ != Life::kClosing && !watches_.loop_reads()) watches_.WatchReadsAgain();
}

bool Connection::may_read() const {
  MutexLock lock(mutex_);
  return !paused_ && life_ == Life::kOpen;
}

void Connection::Read(uint32_t epoll_events) {
  {
    MutexLock lock(mutex_);
    if (life_ == Life::kGone || reading_) return;
    reading_ = true;
  }
  ReadTurn((epoll_events & kPeerLeft) != 0);
  MutexLock lock(mutex_);
  reading_ = false;
  CloseSocketLocked();
}

void Connection::ReadTurn(bool up_to_the_end) {
  size_t turn_bytes = 0;
  while (may_read()) {
    if (turn_bytes >= kTurnBytes) {
      MutexLock lock(mutex_);
      return watches_.WatchReadsAgain();  // Read runs again, after other links
    }
    if (ReadOnce(up_to_the_end, &turn_bytes) == Turn::kOver) return;
  }
}

Connection::Turn Connection::ReadOnce(bool up_to_the_end, size_t* turn_bytes) {
  char greeting[kGreeting.size()];
  std::span<char> space =
      on_greeted_ ? std::span<char>(greeting, greeting_.left()) : reader_.Space();
  const ssize_t count = recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (count < 0 && errno == EINTR) return Turn::kGoOn;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Turn::kOver;
  if (count <= 0) {
    Lose(count == 0 ? "the peer closed it without a reason" : std::strerror(errno));
    return Turn::kOver;
  }
  beats_.NoteReceived();
  *turn_bytes += static_cast<size_t>(count);
  if (on_greeted_) return OnGreeting({greeting, static_cast<size_t>(count)});
  const absl::Status status =
      reader_.Filled(static_cast<size_t>(count), [this](auto message) { OnMessage(message); });
  if (!status.ok()) {
    End(absl::InvalidArgumentError(absl::StrCat(
        peer_.address,
        " sent bytes that are not frames of this protocol: ", std::string(status.message()))));
    return Turn::kOver;
  }
  // A short read has drained the socket, unless the end of the stream follows it.
  const bool all = static_cast<size_t>(count) < space.size() && !up_to_the_end;
  return all ? Turn::kOver : Turn::kGoOn;
}

Connection::Turn Connection::OnGreeting(std::string_view bytes) {
  const IncomingGreeting::State state = greeting_.Take(bytes);
  if (state == IncomingGreeting::State::kIncomplete) return Turn::kGoOn;
  if (state == IncomingGreeting::State::kOther) {
    Lose("the peer does not speak this protocol");
    return Turn::kOver;
  }
  const ssize_t sent =
      send(socket_.get(), kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(kGreeting.size())) {
    Lose("the greeting could not be sent");
    return Turn::kOver;
  }
  std::exchange(on_greeted_, {})(shared_from_this());
  return Turn::kOver;  // the next reader begins with what has arrived
}

void Connection::OnMessage(std::string_view message) {
  {
    MutexLock lock(mutex_);
    if (life_ != Life::kOpen) return;
  }
  if (message.empty()) return;  // a beat
  Trace(TraceKind::kReceive, trace_link_, {}, {}, message.size());
  Batch batch;
  if (!batch.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return End(absl::InvalidArgumentError(
        absl::StrCat(peer_.address, " sent bytes that are not frames of this protocol")));
  }
  CountReceived(static_cast<size_t>(batch.frames_size()), message.size());
  const size_t share = message.size() / (batch.frames_size() + 1) + 1;
  for (wire::Frame& frame : *batch.mutable_frames()) events_->Push(std::move(frame), share);
  if (batch.has_close()) return LetGo(absl::CancelledError(batch.close().reason()));
  if (events_->pending_bytes() < kPendingBytesMax) return;
  {
    MutexLock lock(mutex_);
    paused_ = true;
  }
  events_->NotifyBelow(kPendingBytesMax / 2);  // resumes
}

void Connection::ResumeReading() {
  MutexLock lock(mutex_);
  if (std::exchange(paused_, false) && life_ != Life::kGone) watches_.WatchReadsAgain();
}

// --- Ending ---

void Connection::Close(const absl::Status& reason) {
  events_->Mute();
  BeginClose(reason, Tell::kNobody);
}

void Connection::End(const absl::Status& status) { BeginClose(status, Tell::kOwner); }

void Connection::BeginClose(const absl::Status& reason, Tell tell) {
  {
    MutexLock lock(mutex_);
    if (life_ != Life::kOpen) return;
    life_ = Life::kClosing;
    watches_.ForgetReads();
    if (tell == Tell::kOwner) events_->Finish(reason);
    close_due_ = Clock::now() + kCloseLimit;
    io_->TickAt(close_due_);
    if (broken_) return ShutdownLocked();
    queue_.AppendClose(reason);
    if (writing_ || watches_.awaits_room()) return;
    writing_ = true;
  }
  Write();
}

void Connection::Cancel() {
  MutexLock lock(mutex_);
  if (life_ == Life::kGone) return;
  life_ = Life::kClosing;
  watches_.ForgetReads();
  BreakLocked();
  ShutdownLocked();
}

void Connection::ShutdownLocked() {
  if (life_ == Life::kGone) return;
  shutdown(socket_.get(), SHUT_RDWR);
  watches_.WatchAgain();
}

void Connection::BreakLocked() {
  broken_ = true;
  queue_.Clear();
}

void Connection::Lose(std::string_view why) {
  absl::Status error;
  {
    MutexLock lock(mutex_);
    error = write_error_;
  }
  LetGo(absl::UnavailableError(
      absl::StrCat("the link to ", peer_.address,
                   " was lost: ", error.ok() ? std::string(why) : std::string(error.message()))));
}

// Ends the link, on the IoThread or the thread that reads. An earlier Finish takes precedence over `end`.
void Connection::LetGo(const absl::Status& end) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(life_, Life::kGone) == Life::kGone) return;
    BreakLocked();
    watches_.End();
    shutdown(socket_.get(), SHUT_RDWR);
    CloseSocketLocked();
    events_->Finish(end);
  }
  set_->Remove(this);
}

// --- Time ---

Clock::time_point Connection::OnTick(Clock::time_point now) {
  using Due = Beats::Due;
  bool late;
  auto reading = Beats::Reading::kGoesOn;
  {
    MutexLock lock(mutex_);
    late = life_ == Life::kClosing && now >= close_due_;
    if (life_ == Life::kClosing && !late) return close_due_;
    if (!late && now < beats_.next()) return beats_.next();
    // What the loop that reads has not come to yet is no silence of the peer either.
    if (paused_ || watches_.HasUnread()) reading = Beats::Reading::kRests;
  }
  if (late) {
    LetGo(absl::CancelledError("closed"));
    return Clock::time_point::max();
  }
  const Due due =
      beats_.Look(now, on_greeted_ ? Beats::Peer::kGreets : Beats::Peer::kGreeted, reading);
  if (due == Due::kPeerIsLost) {
    Lose("the peer was silent for a minute (30 s before its greeting)");
  } else if (due == Due::kBeat) {
    Beat();
  }
  return beats_.next();
}

// Sends an empty message.
void Connection::Beat() {
  {
    MutexLock lock(mutex_);
    if (writing_ || watches_.awaits_room() || broken_ || life_ == Life::kClosing) return;
    writing_ = true;
  }
  outgoing_.Set({});
  beats_.NoteSent();
  Write();
}

}  // namespace gangway::transport
