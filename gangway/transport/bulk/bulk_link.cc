// Implementation of bulk_link.h.
#include "gangway/transport/bulk/bulk_link.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "gangway/base/thread.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::transport {

// One attempt to connect and, if it succeeds, the connection. The link's events own it.
struct BulkLink::Connection {
  std::weak_ptr<BulkLink> owner;
  EventLoop* loop = nullptr;
  bool is_on_loop = false;  // frames come on the loop
  Take take;
  wire::Hello hello;                                               // until it is sent
  std::optional<wire::HelloReply> answer;                          // once it has come
  bool is_answered = false;                                        // as the receiver knows it
  std::atomic<Clock::time_point> heard{Clock::time_point::min()};  // the last frame
};

BulkLink::BulkLink(Options options, Events events)
    : options_(std::move(options)), events_(std::move(events)) {}

BulkLink::BulkLink(std::shared_ptr<Link> link, const FrameSender::Stamp& stamp)
    : state_(State::kGreeting),
      sender_(
          std::make_shared<FrameSender>(std::move(link), stamp, FrameSender::Bytes::kUncounted)) {}

BulkLink::~BulkLink() = default;

// It is moved on. NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::Status BulkLink::Send(wire::Frame frame) {
  if (sender_ == nullptr) return absl::UnavailableError("the link is not open");
  return sender_->Send(std::move(frame));
}

void BulkLink::Dial(wire::Hello hello, Take take) {
  Close(absl::CancelledError("it is opened anew"));
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_process_id(ProcessId());
  auto connection = std::make_shared<Connection>();
  connection->owner = weak_from_this();
  connection->loop = options_.loop;
  connection->is_on_loop = options_.receiver == nullptr;
  connection->take = std::move(take);
  connection->hello = std::move(hello);
  connection_ = connection;
  state_ = State::kDialing;
  if (!down_since_) down_since_ = Clock::now();
  options_.dialer->Dial({.address = options_.address,
                         .events = EventsOf(connection),
                         .options = options_.link,
                         .limit = options_.connect_limit,
                         .wanted =
                             [connection] {
                               auto owner = connection->owner.lock();
                               return owner != nullptr && owner->connection_ == connection;
                             },
                         .dialed =
                             [connection](const absl::StatusOr<std::shared_ptr<Link>>& link) {
                               auto owner = connection->owner.lock();
                               if (owner != nullptr && owner->connection_ == connection)
                                 return owner->OnDialed(link);
                               if (link.ok())
                                 (*link)->Close(absl::CancelledError("no longer needed"));
                             }});
}

LinkEvents BulkLink::EventsOf(const ConnectionPtr& connection) const {
  LinkEvents events;
  events.executor = options_.receiver == nullptr ? options_.loop : options_.receiver;
  events.on_frame = [connection](wire::Frame frame) { OnFrame(connection, std::move(frame)); };
  if (events_.on_writable) {
    events.on_writable = [connection] {
      OnLoop(connection, [](BulkLink& link) { link.events_.on_writable(); });
    };
  }
  events.on_closed = [connection](const absl::Status& why) {
    OnLoop(connection, [why](BulkLink& link) { link.Lose(why); });
  };
  if (options_.piece_fields_max == 0) return events;
  return JoinPieces(std::move(events), options_.piece_fields_max);
}

// Runs the task, on the loop, unless the connection has been given up by then.
template <typename Task>
void BulkLink::OnLoop(const ConnectionPtr& connection, Task task) {
  auto run = [connection, task = std::move(task)]() mutable {
    const std::shared_ptr<BulkLink> owner = connection->owner.lock();
    if (owner != nullptr && owner->connection_ == connection) task(*owner);
  };
  if (connection->is_on_loop) return run();
  connection->loop->Post(std::move(run));
}

// On the receiver. What comes before the answer counts as a sign of life only.
void BulkLink::OnFrame(const ConnectionPtr& connection, wire::Frame frame) {
  connection->heard.store(Clock::now(), std::memory_order_relaxed);
  if (frame.has_hello_reply()) {
    if (connection->is_answered) return;
    connection->is_answered = frame.hello_reply().failure().code() == 0;
    return OnLoop(connection, [answer = std::move(*frame.mutable_hello_reply())](
                                  BulkLink& link) mutable { link.OnAnswer(std::move(answer)); });
  }
  if (!connection->is_answered) return;
  const std::shared_ptr<BulkLink> owner =
      connection->is_on_loop ? connection->owner.lock() : nullptr;
  const bool is_given_up =
      owner == nullptr || owner->connection_ != connection || !owner->is_open();
  if (connection->is_on_loop && is_given_up) return;
  absl::Status taken = connection->take(std::move(frame));
  if (taken.ok()) return;
  OnLoop(connection, [taken = std::move(taken)](BulkLink& link) { link.Lose(taken); });
}

void BulkLink::OnDialed(const absl::StatusOr<std::shared_ptr<Link>>& link) {
  if (!link.ok()) return Lose(link.status());
  sender_ = std::make_shared<FrameSender>(*link, options_.stamp, FrameSender::Bytes::kCounted);
  state_ = State::kGreeting;
  wire::Frame frame;
  *frame.mutable_hello() = std::move(connection_->hello);
  if (absl::Status sent = sender_->Send(std::move(frame)); !sent.ok()) return Lose(sent);
  ++hellos_;
  greeting_.Await(Clock::now());
  if (connection_->answer) Open();  // the peer did not wait for the Hello
}

void BulkLink::OnAnswer(wire::HelloReply answer) {
  if (absl::Status refused = wire::ToStatus(answer.failure()); !refused.ok()) return Lose(refused);
  connection_->answer = std::move(answer);
  if (state_ == State::kGreeting) Open();
}

void BulkLink::Open() {
  state_ = State::kOpen;
  greeting_.Rest();
  down_since_.reset();
  events_.on_open(*connection_->answer);
}

void BulkLink::Lose(const absl::Status& why) {
  const State was = state_;
  Close(why);
  events_.on_lost(why, was);
}

void BulkLink::Close(const absl::Status& why) {
  ++attempt_;
  if (connection_ != nullptr && is_open()) down_since_ = Clock::now();
  state_ = State::kDown;
  connection_ = nullptr;
  greeting_ = {};
  silence_ = {};
  queued_ = gone_ = 0;
  if (auto sender = std::exchange(sender_, nullptr)) sender->Close(why);
}

void BulkLink::Redial() {
  const auto interval = std::min(kRedialMax, kRedialFirst * (1 << std::min(failures_++, 10)));
  options_.loop->PostAt(Clock::now() + interval, [weak = weak_from_this(), attempt = attempt_] {
    const std::shared_ptr<BulkLink> link = weak.lock();
    const bool is_due = link != nullptr && link->attempt_ == attempt && !link->connection_;
    if (is_due) link->events_.on_redial();
  });
}

Clock::duration BulkLink::DownFor(Clock::time_point now) const {
  return down_since_ ? now - *down_since_ : Clock::duration();
}

void BulkLink::Answer(wire::HelloReply answer) {
  answer.set_build_version(wire::kBuildVersion);
  answer.set_protocol_version(wire::kProtocolVersion);
  state_ = State::kOpen;
  wire::Frame frame;
  *frame.mutable_hello_reply() = std::move(answer);
  Send(std::move(frame)).IgnoreError();
}

void BulkLink::Refuse(const absl::Status& why) {
  wire::Frame frame;
  *frame.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
  Send(std::move(frame)).IgnoreError();
  Close(why);
}

wire::Frame BulkLink::ReplyTo(const wire::Frame& question) {
  wire::Frame reply;
  reply.mutable_heartbeat()->set_time_ns(question.heartbeat().time_ns());
  return reply;
}

void BulkLink::NoteHeard() {
  if (connection_ == nullptr) return;
  const Clock::time_point heard = connection_->heard.load(std::memory_order_relaxed);
  greeting_.Hear(heard);
  silence_.Hear(heard);
}

// A question waits behind what is queued, perhaps for long on a slow network.
void BulkLink::NoteProgress(Clock::time_point now) {
  const FrameSender::Progress progress = sender_->progress();
  const uint64_t gone = progress.taken > progress.queued ? progress.taken - progress.queued : 0;
  if (queued_ > 0 && gone > gone_) silence_.Hear(now);
  queued_ = progress.queued;
  gone_ = gone;
}

void BulkLink::Skip(Clock::duration stood_still, Clock::time_point now) {
  NoteHeard();
  greeting_.Skip(stood_still, now);
  silence_.Skip(stood_still, now);
  if (down_since_) down_since_ = std::min(now, *down_since_ + stood_still);
}

bool BulkLink::IsSilent(Clock::time_point now, Clock::duration limit) {
  if (sender_ == nullptr) return false;
  NoteHeard();
  if (!is_open()) return greeting_.IsTooLong(now, limit);
  if (connection_ != nullptr) NoteProgress(now);
  return silence_.IsTooLong(now, limit);
}

std::optional<uint64_t> BulkLink::Ask() {
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(questions_ + 1);
  if (!Send(std::move(frame)).ok()) return std::nullopt;
  return ++questions_;
}

}  // namespace gangway::transport
