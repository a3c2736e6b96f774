// Implementation of connection.h.
#include "gangway/transport/local/connection.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {
namespace {

constexpr size_t kPendingBytesMax = 64 << 20;  // read and not yet taken by the receiver
constexpr size_t kTurnBytes = 4 << 20;         // read or written for one link before other links
constexpr std::chrono::seconds kBeat{15};
constexpr int kSilentBeatsMax = 4;
constexpr int kGreetingBeatsMax = 2;

constexpr uint32_t kReads = EPOLLIN | EPOLLRDHUP | EPOLLET;
constexpr uint32_t kPeerLeft = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// Of the IoThread.
uint32_t Interest(bool blocked, bool reads) {
  uint32_t interest = EPOLLET;
  if (reads) interest |= kReads;
  if (blocked) interest |= EPOLLOUT;
  return interest;
}

// Whole seconds: the IoThread, which ticks all links whenever one of them is due, wakes for many of them at once.
Clock::time_point NextBeat(Clock::time_point now) {
  return std::chrono::floor<std::chrono::seconds>(now + kBeat);
}

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
      id_(io->NextId()),
      options_(options),
      message_bytes_max_(message_bytes_max),
      peer_{.address = std::move(peer_address), .authenticated = false},
      next_beat_(NextBeat(Clock::now())),
      reader_(message_bytes_max),
      socket_(std::move(socket)) {}

void Connection::Serve(std::function<void(const std::shared_ptr<Connection>&)> on_greeted) {
  on_greeted_ = std::move(on_greeted);
  io_->TickAt(next_beat_);
  absl::Status status;
  {
    MutexLock lock(mutex_);
    served_ = true;
    status = io_->Watch(id_, socket_.get(), Interest(blocked_, true), shared_from_this());
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
    if (poller.ok()) read_by_ = *std::move(poller);  // else the IoThread reads
  }
  events_->Start(std::move(events));
}

void Connection::WatchWritesLocked() {
  if (served_ && !gone_) io_->Change(id_, socket_.get(), Interest(blocked_, read_id_ == 0));
}

void Connection::WatchReadsLocked() {
  if (read_id_ == 0) return WatchWritesLocked();
  read_by_->Change(read_id_, socket_.get(), kReads);
}

// From here on the loop reads, if there is one.
void Connection::MoveReadsLocked() {
  if (read_by_ == nullptr || read_id_ != 0 || closing_ || gone_) return;
  const uint64_t id = read_by_->NextId();
  if (!read_by_->Watch(id, socket_.get(), kReads, std::make_shared<ReadEnd>(shared_from_this()))
           .ok()) {
    read_by_ = nullptr;  // the IoThread goes on
    return;
  }
  read_id_ = id;
  WatchWritesLocked();
}

void Connection::ForgetReadsLocked() {
  if (const uint64_t id = std::exchange(read_id_, 0)) read_by_->Forget(id, socket_.get());
}

void Connection::CloseSocketLocked() {
  if (gone_ && !writing_ && !reading_) socket_.Reset();
}

// --- Sending ---

absl::Status Connection::Send(wire::Frame frame, FrameParts parts) {
  const size_t bytes = frame.ByteSizeLong() + BytesOf(parts);
  if (bytes > frame_bytes_max()) return TooLarge(peer_, bytes, message_bytes_max_);
  {
    MutexLock lock(mutex_);
    if (closing_ || broken_) return LinkClosed(peer_, events_->end());
    const size_t queued = queued_bytes_.load(std::memory_order_relaxed);
    if (queued >= options_.queue_bytes_max) {
      above_writable_ = true;
      return QueueFull(peer_, queued, options_.queue_bytes_max);
    }
    Trace(TraceKind::kSend, trace_link_, {}, {}, bytes);
    CountSent(frame, bytes);
    outbox_.Append(std::move(frame), parts, bytes);
    queued_bytes_.store(queued + bytes, std::memory_order_relaxed);
    if (queued + bytes > options_.writable_bytes()) above_writable_ = true;
    if (writing_ || blocked_ || LeaveToRoundEndLocked()) return absl::OkStatus();
    writing_ = true;
  }
  Write();
  return absl::OkStatus();
}

// A single frame is not delayed, and many cost two writes and two wakes of the peer. Other threads
// do not wait for the loop: their writes include the frames that wait.
bool Connection::LeaveToRoundEndLocked() {
  EventLoop* loop = EventLoop::Current();
  if (loop == nullptr) return false;
  const Round now(loop, loop->round());
  if (sent_in_ != now) {
    sent_in_ = now;
    return false;
  }
  if (flushed_after_ != now) {
    flushed_after_ = now;
    loop->AtRoundEnd([self = shared_from_this()] { self->Flush(); });
  }
  return true;
}

void Connection::Flush() {
  {
    MutexLock lock(mutex_);
    flushed_after_ = {};  // a later frame of the round needs another Flush
    if (writing_ || blocked_ || broken_ || outbox_.empty()) return;
    writing_ = true;
  }
  Write();
}

// Runs on the thread that has set writing_. It stops after kTurnBytes, and the transport's thread
// continues.
void Connection::Write() {
  size_t turn_bytes = 0;
  while (true) {
    if (outgoing_.first == outgoing_.left.size() && NextOutgoing() == Turn::kOver) return;
    if (turn_bytes >= kTurnBytes) return StopWriting(/*wait_for_room=*/true);
    msghdr message{};
    message.msg_iov = outgoing_.left.data() + outgoing_.first;
    message.msg_iovlen = std::min<size_t>(outgoing_.left.size() - outgoing_.first, IOV_MAX);
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return StopWriting(true);
    if (sent < 0) return OnWriteError(errno);
    turn_bytes += static_cast<size_t>(sent);
    Sent(static_cast<size_t>(sent));
  }
}

// Prepares the next message when one is written. kOver: no message is left, and writing ends.
Connection::Turn Connection::NextOutgoing() {
  bool writable = false, over = false;
  Outbox::Message next;
  {
    MutexLock lock(mutex_);
    if (!broken_) {
      const size_t written = std::exchange(outgoing_.message.bytes, 0);
      const size_t queued = queued_bytes_.load(std::memory_order_relaxed) - written;
      queued_bytes_.store(queued, std::memory_order_relaxed);
      writable = above_writable_ && queued <= options_.writable_bytes();
      if (writable) above_writable_ = false;
    }
    over = broken_ || outbox_.empty();
    if (over) {
      writing_ = false;
      if (closing_) ShutdownLocked();
      CloseSocketLocked();
    } else {
      next = outbox_.Take();
    }
  }
  if (writable) events_->PushWritable();
  if (over) return Turn::kOver;
  PrepareOutgoing(std::move(next));
  return Turn::kGoOn;
}

void Connection::PrepareOutgoing(Outbox::Message message) {
  outgoing_.message = std::move(message);
  outgoing_.left.clear();
  outgoing_.first = 0;
  size_t bytes = 0;
  outgoing_.left.push_back({outgoing_.header.data(), outgoing_.header.size()});
  for (const Outbox::Piece& piece : outgoing_.message.pieces) {
    const std::string_view view = piece.bytes();
    outgoing_.left.push_back({const_cast<char*>(view.data()), view.size()});  // sendmsg reads it
    bytes += view.size();
  }
  outgoing_.header = MessageHeader(bytes);
  sent_.store(true, std::memory_order_relaxed);
}

void Connection::Sent(size_t bytes) {
  while (bytes > 0) {
    iovec& front = outgoing_.left[outgoing_.first];
    const size_t taken = std::min(bytes, front.iov_len);
    front.iov_base = static_cast<char*>(front.iov_base) + taken;
    front.iov_len -= taken;
    bytes -= taken;
    if (front.iov_len == 0) ++outgoing_.first;
  }
}

void Connection::StopWriting(bool wait_for_room) {
  MutexLock lock(mutex_);
  writing_ = false;
  CloseSocketLocked();
  if (gone_ || !wait_for_room) return;
  blocked_ = true;
  WatchWritesLocked();
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
    if (!blocked_ || gone_) return;
    blocked_ = false;
    writing_ = true;
    WatchWritesLocked();
  }
  Write();
}

// --- Receiving ---

void Connection::OnReady(uint32_t epoll_events) {
  if ((epoll_events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) ResumeWriting();
  bool let_go, reads;
  {
    MutexLock lock(mutex_);
    let_go = closing_ && (epoll_events & (EPOLLHUP | EPOLLERR)) != 0;
    reads = read_id_ == 0 && !closing_ && !gone_;
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
  if (read_id_ == 0 && !closing_) WatchReadsLocked();
}

bool Connection::may_read() const {
  MutexLock lock(mutex_);
  return !paused_ && !closing_ && !gone_;
}

void Connection::Read(uint32_t epoll_events) {
  {
    MutexLock lock(mutex_);
    if (gone_ || reading_) return;
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
      return WatchReadsLocked();  // Read runs again, after other links
    }
    if (ReadOnce(up_to_the_end, &turn_bytes) == Turn::kOver) return;
  }
}

Connection::Turn Connection::ReadOnce(bool up_to_the_end, size_t* turn_bytes) {
  char greeting[kGreeting.size()];
  std::span<char> space = on_greeted_
                              ? std::span<char>(greeting, kGreeting.size() - greeting_.size())
                              : reader_.Space();
  const ssize_t count = recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (count < 0 && errno == EINTR) return Turn::kGoOn;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Turn::kOver;
  if (count <= 0) {
    Lose(count == 0 ? "the peer closed it without a reason" : std::strerror(errno));
    return Turn::kOver;
  }
  received_.store(true, std::memory_order_relaxed);
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
  greeting_.append(bytes);
  if (greeting_ != kGreeting.substr(0, greeting_.size())) {
    Lose("the peer does not speak this protocol");
    return Turn::kOver;
  }
  if (greeting_.size() < kGreeting.size()) return Turn::kGoOn;
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
    if (closing_ || gone_) return;
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
  if (!std::exchange(paused_, false) || gone_) return;
  WatchReadsLocked();
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
    if (closing_ || gone_) return;
    closing_ = true;
    ForgetReadsLocked();
    if (tell == Tell::kOwner) events_->Finish(reason);
    close_due_ = Clock::now() + kCloseLimit;
    io_->TickAt(close_due_);
    if (broken_) return ShutdownLocked();
    outbox_.AppendClose(reason.ok() ? "closed by the peer" : std::string(reason.message()));
    if (writing_ || blocked_) return;
    writing_ = true;
  }
  Write();
}

void Connection::Cancel() {
  MutexLock lock(mutex_);
  if (gone_) return;
  closing_ = true;
  ForgetReadsLocked();
  BreakLocked();
  ShutdownLocked();
}

void Connection::ShutdownLocked() {
  if (gone_) return;
  shutdown(socket_.get(), SHUT_RDWR);
  WatchWritesLocked();
}

void Connection::BreakLocked() {
  broken_ = true;
  outbox_.Clear();
  queued_bytes_.store(0, std::memory_order_relaxed);
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
    if (std::exchange(gone_, true)) return;
    BreakLocked();
    ForgetReadsLocked();
    io_->Forget(id_, socket_.get());
    shutdown(socket_.get(), SHUT_RDWR);
    CloseSocketLocked();
    events_->Finish(end);
  }
  set_->Remove(this);
}

// --- Time ---

// The loop that reads has not come to it yet, so the peer is not silent.
bool Connection::HasUnreadLocked() const {
  int bytes = 0;
  return read_id_ != 0 && ioctl(socket_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

Clock::time_point Connection::OnTick(Clock::time_point now) {
  bool late, paused;
  {
    MutexLock lock(mutex_);
    late = closing_ && now >= close_due_;
    if (closing_ && !late) return close_due_;
    if (!late && now < next_beat_) return next_beat_;
    paused = paused_ || HasUnreadLocked();
  }
  if (late) {
    LetGo(absl::CancelledError("closed"));
    return Clock::time_point::max();
  }
  next_beat_ = NextBeat(now);
  silent_beats_ =
      received_.exchange(false, std::memory_order_relaxed) || paused ? 0 : silent_beats_ + 1;
  if (silent_beats_ >= (on_greeted_ ? kGreetingBeatsMax : kSilentBeatsMax)) {
    Lose("the peer was silent for a minute (30 s before its greeting)");
  } else if (!on_greeted_ && !sent_.exchange(false, std::memory_order_relaxed)) {
    Beat();
  }
  return next_beat_;
}

// Sends an empty message.
void Connection::Beat() {
  {
    MutexLock lock(mutex_);
    if (writing_ || blocked_ || broken_ || closing_) return;
    writing_ = true;
  }
  PrepareOutgoing({});
  Write();
}

}  // namespace gangway::transport
