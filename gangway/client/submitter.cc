// Implementation of submitter.h.
#include "gangway/client/submitter.h"

#include "gangway/base/check.h"
#include "gangway/base/trace.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

constexpr int kBatchOps = 4096;  // per frame
constexpr int kSendRounds = 4;
// Callers may send this many operations at once, and one more in each interval.
constexpr int kSendsAtOnce = 4;
constexpr std::chrono::microseconds kSendInterval{100};
constexpr std::chrono::microseconds kLaterInterval{1000};
// A caller is far ahead after so many operations without a wait, while the next one comes within the interval. The
// interval is well below the time after which the controller takes a session for idle, and tells it of its ends.
constexpr uint64_t kAheadOps = 16;
constexpr std::chrono::microseconds kAheadInterval{300};
constexpr int kBurstOps = 256;  // of which a burst is sent without waiting for the interval's end
// Unsent programs and operations: more than the controller accepts of one session's programs.
constexpr size_t kWaitingBytesMax = size_t{2} << 30;

// Calls `done` with the first failure of `count` calls, at the last of them, which come one at a time.
StatusCallback AfterAll(uint64_t count, StatusCallback done) {
  struct State {
    uint64_t left = 0;
    absl::Status first;
    StatusCallback done;
  };
  auto state = std::make_shared<State>(State{count, absl::OkStatus(), std::move(done)});
  return [state](const absl::Status& status) {
    state->first.Update(status);
    if (--state->left == 0) state->done(state->first);
  };
}

}  // namespace

void Submitter::Open(std::shared_ptr<transport::Link> link, wire::Frame hello) {
  {
    MutexLock lock(sender_mutex_);
    sender_ = std::make_unique<transport::PacedSender>(
        link, [this](wire::Frame& sending) { Stamp(sending); },
        transport::PacedSender::Options{.waiting_bytes_max = kWaitingBytesMax});
  }
  {
    MutexLock lock(mutex_);
    link_ = std::move(link);
    batches_.push_back(std::move(hello));
  }
  SendBatches();
}

// --- Appending ---

absl::Status Submitter::Refuse(StatusCallback ended) {
  if (ended) DeferLocked([ended = std::move(ended), why = lost_] { ended(why); });
  return lost_;
}

OperationId Submitter::NextOperation(uint64_t nodes) const {
  return nodes == 0 ? OperationId()
                    : OperationId(submitted_.load(std::memory_order_relaxed) + nodes);
}

wire::Op* Submitter::NewOp(uint64_t nodes, StatusCallback ended) {
  CountNodes(nodes, std::move(ended));
  if (looks_.MayTellTogether()) AddOp()->mutable_tell_ends()->set_when(wire::ENDS_TOGETHER);
  return AddOp();
}

wire::Op* Submitter::AddOp() {
  if (batches_.empty() || batches_.back().session_batch().ops_size() >= kBatchOps)
    batches_.emplace_back();
  return batches_.back().mutable_session_batch()->add_ops();
}

void Submitter::CountNodes(uint64_t nodes, StatusCallback ended) {
  NoteEnds(nodes, std::move(ended));
  if (nodes > 0) ++unawaited_ops_;
  submitted_.fetch_add(nodes, std::memory_order_relaxed);
}

// Where the controller tells of the ends late, those of calls that nothing waits for are not known.
void Submitter::NoteEnds(uint64_t nodes, StatusCallback ended) {
  if (!options_.reports_ends) {
    GANGWAY_CHECK(!ended, "this session was not asked to report the ends of operations");
    return;
  }
  if (nodes == 0) {
    if (ended) DeferLocked([ended = std::move(ended)] { ended(absl::OkStatus()); });
    return;
  }
  // Of several nodes, the last one that ends tells; their first failure counts.
  if (nodes > 1 && ended) ended = AfterAll(nodes, std::move(ended));
  for (uint64_t i = 1; i < nodes; ++i) ends_.Submit(ended);
  ends_.Submit(std::move(ended));
  options_.activity->SetBusy(true);
}

wire::Op* Submitter::LastOp() {
  if (batches_.empty() || !batches_.back().has_session_batch()) return nullptr;
  auto* const ops = batches_.back().mutable_session_batch()->mutable_ops();
  return ops->empty() ? nullptr : ops->Mutable(ops->size() - 1);
}

// --- Sending ---

void Submitter::SendOrWake(Urgency urgency) {
  {
    MutexLock lock(mutex_);
    if (urgency == Urgency::kAtOnce) unawaited_ops_ = 0;
    if (batches_.empty()) return;
    if (sending_ || !link_ || link_->queued_bytes() > 0) return WakeLocked();
    if (const auto interval = WaitOf(urgency)) {
      const bool is_full =
          batches_.size() > 1 || batches_.back().session_batch().ops_size() >= kBurstOps;
      return is_full ? WakeLocked() : FlushWithinLocked(*interval);
    }
  }
  SendBatches();
}

std::optional<std::chrono::microseconds> Submitter::WaitOf(Urgency urgency) {
  if (urgency == Urgency::kAtOnce) return std::nullopt;
  if (urgency == Urgency::kLater && (FollowsAnother() || flush_at_.has_value()))
    return kLaterInterval;
  if (urgency == Urgency::kBatched && IsFarAhead()) return kAheadInterval;
  if (!IsBurst()) return std::nullopt;
  return urgency == Urgency::kLater ? kLaterInterval : kSendInterval;
}

// A script takes some 20 to 45 us for each call, and would send most of them on its own: it earns a send at once in
// each interval. While nothing waits for one of them, none is the worse for waiting longer. Of a session that looks for
// every end it is not known what it waits for.
bool Submitter::IsFarAhead() {
  const auto now = Clock::now();
  const bool follows = now < std::exchange(ahead_until_, now + kAheadInterval);
  return follows && unawaited_ops_ > kAheadOps && !looks_.are_for_all();
}

// Each frame costs both ends a system call and the controller a wake: a caller sends a few operations at once, those of
// a burst travel together.
bool Submitter::IsBurst() {
  const auto now = Clock::now();
  const auto earned = (now - refilled_) / kSendInterval;
  if (sends_left_ + earned >= kSendsAtOnce) {
    sends_left_ = kSendsAtOnce;
    refilled_ = now;
  } else {
    sends_left_ += static_cast<int>(earned);
    refilled_ += earned * kSendInterval;
  }
  if (sends_left_ == 0) return true;
  --sends_left_;
  return false;
}

// A burst of operations that may wait lasts longer than those at once that a caller earns.
bool Submitter::FollowsAnother() {
  const auto now = Clock::now();
  return now < std::exchange(follows_until_, now + kLaterInterval);
}

void Submitter::SendNow() {
  {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return;
  }
  SendOrWake(Urgency::kAtOnce);
}

void Submitter::SendQuery(wire::Frame frame) {
  SendNow();
  frame.set_epoch(epoch_);
  if (const auto to = link()) (void)to->Send(std::move(frame));  // on_closed reports a closed link
}

// The sending thread also sends, in order, what other threads append while it sends. After
// kSendRounds the loop takes over, so that other callers cannot hold a caller here. A failed link
// is not used again: later operations must not arrive without the lost ones.
void Submitter::SendBatches() {
  std::vector<wire::Frame> frames;
  bool sending = false, is_open = false;
  for (int round = 0;; ++round) {
    {
      MutexLock lock(mutex_);
      if (sending_ && !sending) return;
      if (round == kSendRounds && !batches_.empty()) {
        sending_ = false;
        return WakeLocked();
      }
      frames.clear();
      frames.swap(batches_);
      is_open = link_ != nullptr;
      sending = sending_ = !frames.empty();
      if (!sending) return;
    }
    for (wire::Frame& frame : frames) {
      if (!is_open) break;  // lost
      absl::Status sent = Send(std::move(frame));
      if (sent.ok()) continue;
      // `sending_` stays true.
      return options_.loop->Post([this, sent] { options_.on_failed(sent); });
    }
  }
}

absl::Status Submitter::Send(wire::Frame frame) {
  MutexLock lock(sender_mutex_);
  return sender_ ? sender_->Send(std::move(frame)) : absl::OkStatus();
}

void Submitter::Stamp(wire::Frame& frame) {
  frame.set_epoch(epoch_);
  frame.set_sequence(++sequence_);
  if (!frame.has_piece()) Trace(TraceKind::kSubmit, 0, session_, {}, sequence_);
}

void Submitter::OnWritable() {
  absl::Status sent;
  {
    MutexLock lock(sender_mutex_);
    if (sender_) sent = sender_->OnWritable();
  }
  if (!sent.ok()) options_.on_failed(sent);
}

bool Submitter::HoldsBurst() const {
  MutexLock lock(mutex_);
  return flush_at_.has_value();
}

void Submitter::FlushSoon() {
  MutexLock lock(mutex_);
  FlushWithinLocked(kSendInterval);
}

void Submitter::FlushWithinLocked(std::chrono::microseconds interval) {
  const Clock::time_point at = Clock::now() + interval;
  if (flush_posted_ || (flush_at_ && *flush_at_ <= at)) return;
  flush_at_ = at;
  options_.loop->PostAt(at, [this, at] {
    {
      MutexLock lock(mutex_);
      if (flush_at_ != at) return;  // another timer was to flush before
      flush_at_.reset();
    }
    Flush();
  });
}

void Submitter::Wake() {
  MutexLock lock(mutex_);
  WakeLocked();
}

void Submitter::WakeLocked() {
  if (flush_posted_) return;
  flush_posted_ = true;
  options_.loop->Post([this] { Flush(); });
}

void Submitter::Flush() {
  {
    MutexLock lock(mutex_);
    flush_posted_ = false;
  }
  const std::function<void()> send_beside = options_.take_beside();
  SendBatches();
  if (send_beside) send_beside();
  RunDeferred();
}

// --- Tasks for the loop ---

void Submitter::Defer(std::function<void()> task) {
  MutexLock lock(mutex_);
  DeferLocked(std::move(task));
}

void Submitter::DeferLocked(std::function<void()> task) {
  deferred_.push_back(std::move(task));
  WakeLocked();
}

void Submitter::RunDeferred() {
  std::vector<std::function<void()>> deferred;
  {
    MutexLock lock(mutex_);
    deferred.swap(deferred_);
  }
  for (auto& task : deferred) task();
}

// --- Ends, and room ---

void Submitter::OnProgress(const wire::Progress& progress) {
  const uint64_t before = ended_.load(std::memory_order_relaxed);
  std::vector<std::vector<StatusCallback>> ended(static_cast<size_t>(progress.nodes_size()));
  {
    // All before the callbacks: one of them may look for a node whose end has come as well.
    MutexLock lock(mutex_);
    for (int i = 0; i < progress.nodes_size(); ++i) {
      const wire::NodesEnded& nodes = progress.nodes(i);
      if (options_.reports_ends) looks_.NoteEnded(nodes.first(), nodes.count());
      ends_.End(nodes.first(), nodes.count(), ended[static_cast<size_t>(i)]);
    }
  }
  for (int i = 0; i < progress.nodes_size(); ++i) {
    const absl::Status status = wire::ToStatus(progress.nodes(i).failure());
    for (StatusCallback& each : ended[static_cast<size_t>(i)]) each(status);
  }
  if (progress.ended() <= before) return;
  ended_.store(progress.ended(), std::memory_order_relaxed);
  if (options_.reports_ends) {
    MutexLock lock(mutex_);  // so that no operation begins during this
    options_.activity->SetBusy(pending() != 0);
  }
  TellRoom();
}

// Not with a later operation: the thread that looks may submit none. What it waits for may be held.
void Submitter::BeginLook() {
  {
    MutexLock lock(mutex_);
    const bool is_to_be_told = looks_.Begin();
    if (!lost_.ok()) return;
    if (is_to_be_told) AddOp()->mutable_tell_ends()->set_when(wire::ENDS_AT_ONCE);
  }
  SendOrWake(Urgency::kAtOnce);
}

void Submitter::LookFor(OperationId operation) {
  const uint64_t number = NumberOf(operation);
  {
    MutexLock lock(mutex_);
    if (!lost_.ok() || !ends_.IsPending(number)) return;
    const EndLooks::Tell tell = looks_.LookFor(number);
    if (tell == EndLooks::Tell::kAtOnce) {
      AddOp()->mutable_tell_ends()->set_when(wire::ENDS_AT_ONCE);
    } else if (tell == EndLooks::Tell::kTogether) {
      wire::TellEndsOp& op = *AddOp()->mutable_tell_ends();
      op.set_when(wire::ENDS_TOGETHER);
      op.set_looked_for(number);
    }
  }
  SendOrWake(Urgency::kAtOnce);
}

void Submitter::EndLook() {
  MutexLock lock(mutex_);
  looks_.End();
}

uint64_t Submitter::pending() const {
  const uint64_t ended = ended_.load(std::memory_order_relaxed);
  const uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  return submitted > ended ? submitted - ended : 0;
}

void Submitter::WhenRoom(std::function<void()> on_room) {
  {
    MutexLock lock(mutex_);
    if (!lost_.ok() || pending() < options_.pending_max) return DeferLocked(std::move(on_room));
    room_.push_back(std::move(on_room));
    options_.activity->Begin();
  }
  BeginLook();
}

void Submitter::TellRoom() {
  std::vector<std::function<void()>> room;
  {
    MutexLock lock(mutex_);
    if (pending() >= options_.pending_max) return;
    room.swap(room_);
    for (size_t i = 0; i < room.size(); ++i) looks_.End();
  }
  options_.activity->End(room.size());
  for (auto& on_room : room) on_room();
}

// --- The end ---

absl::Status Submitter::lost() const {
  MutexLock lock(mutex_);
  return lost_;
}

bool Submitter::Lose(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (!lost_.ok()) return false;
  lost_ = why;
  return true;
}

void Submitter::Close(const absl::Status& why) {
  std::shared_ptr<transport::Link> link;
  {
    MutexLock lock(mutex_);
    link = std::exchange(link_, nullptr);
    batches_.clear();
  }
  if (link) link->Close(why);
  MutexLock lock(sender_mutex_);
  sender_.reset();
}

void Submitter::EndAll(const absl::Status& why) {
  std::vector<std::function<void()>> room;
  std::vector<StatusCallback> ended;
  {
    MutexLock lock(mutex_);
    room.swap(room_);
    ends_.EndAll(ended);
    ended_ = submitted_.load();
    options_.activity->SetBusy(false);
  }
  options_.activity->End(room.size());
  for (auto& on_room : room) on_room();
  for (StatusCallback& each : ended) each(why);
}

std::shared_ptr<transport::Link> Submitter::link() const {
  MutexLock lock(mutex_);
  return link_;
}

}  // namespace gangway::client
