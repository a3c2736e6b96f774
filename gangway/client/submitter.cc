// Implementation of submitter.h.
#include "gangway/client/submitter.h"

#include "gangway/base/check.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

constexpr int kSendRounds = 4;

}  // namespace

void Submitter::Open(std::shared_ptr<transport::Link> link, wire::Frame hello) {
  sender_.Open(link);
  {
    MutexLock lock(mutex_);
    link_ = std::move(link);
    batches_.Add(std::move(hello));
  }
  SendBatches();
}

// --- Appending ---

absl::Status Submitter::Refuse(StatusCallback ended) {
  if (ended) DeferLocked([ended = std::move(ended), why = lost_] { ended(why); });
  return lost_;
}

wire::Op* Submitter::NewOp(uint64_t nodes, StatusCallback ended) {
  CountNodes(nodes, std::move(ended));
  if (looks_.MayTellTogether())
    batches_.AddOp()->mutable_tell_ends()->set_when(wire::ENDS_TOGETHER);
  return capture_.AddOp();
}

void Submitter::CountNodes(uint64_t nodes, StatusCallback ended) {
  NoteEnds(nodes, std::move(ended));
  if (nodes > 0) pace_.NoteOperation();
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
  ends_.Submit(nodes, std::move(ended));
  options_.activity->SetBusy(true);
}

// --- Programs ---

void Submitter::BeginProgram() {
  MutexLock lock(mutex_);
  capture_.BeginProgram();
}

ProgramCapture Submitter::EndProgram() {
  const Sending sending(*this);
  MutexLock lock(mutex_);
  return capture_.EndProgram();
}

void Submitter::OnRegistered(const wire::Registered& registered) {
  MutexLock lock(mutex_);
  capture_.OnRegistered(registered);
}

// --- Sending ---

void Submitter::SendOrWake(Urgency urgency) {
  {
    MutexLock lock(mutex_);
    if (urgency == Urgency::kAtOnce) pace_.NoteWait();
    if (batches_.empty()) return;
    if (sending_ || !link_ || link_->queued_bytes() > 0) return WakeLocked();
    const BatchPace::Context context{.holds_operations = flush_at_.has_value(),
                                     .looks_for_all = looks_.are_for_all()};
    if (const auto interval = pace_.WaitOf(urgency, options_.now(), context))
      return batches_.HasBurst() ? WakeLocked() : FlushWithinLocked(*interval);
  }
  SendBatches();
}

void Submitter::SendNow() {
  {
    MutexLock lock(mutex_);
    if (!lost_.ok()) return;
    capture_.Cut("a wait");
  }
  SendOrWake(Urgency::kAtOnce);
}

void Submitter::SendQuery(wire::Frame frame) {
  SendNow();
  frame.set_epoch(sender_.epoch());
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
      batches_.TakeInto(frames);
      if (options_.captures_bursts) capture_.CaptureBursts(frames);
      is_open = link_ != nullptr;
      sending = sending_ = !frames.empty();
      if (!sending) return;
    }
    for (wire::Frame& frame : frames) {
      if (!is_open) break;  // lost
      absl::Status sent = sender_.Send(std::move(frame));
      if (sent.ok()) continue;
      // `sending_` stays true.
      return options_.loop->Post([this, sent] { options_.on_failed(sent); });
    }
  }
}

void Submitter::OnWritable() {
  if (const absl::Status sent = sender_.OnWritable(); !sent.ok()) options_.on_failed(sent);
}

bool Submitter::HoldsBurst() const {
  MutexLock lock(mutex_);
  return flush_at_.has_value();
}

void Submitter::FlushSoon() {
  MutexLock lock(mutex_);
  FlushWithinLocked(BatchPace::kSendInterval);
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
    capture_.Cut("a wait");
    if (is_to_be_told) batches_.AddOp()->mutable_tell_ends()->set_when(wire::ENDS_AT_ONCE);
  }
  SendOrWake(Urgency::kAtOnce);
}

void Submitter::LookFor(OperationId operation) {
  const uint64_t number = NumberOf(operation);
  {
    MutexLock lock(mutex_);
    if (!lost_.ok() || !ends_.IsPending(number)) return;
    if (number > submitted_.load(std::memory_order_relaxed) - capture_.held_nodes())
      capture_.Cut("a wait");
    const EndLooks::Tell tell = looks_.LookFor(number);
    if (tell == EndLooks::Tell::kAtOnce) {
      batches_.AddOp()->mutable_tell_ends()->set_when(wire::ENDS_AT_ONCE);
    } else if (tell == EndLooks::Tell::kTogether) {
      wire::TellEndsOp& op = *batches_.AddOp()->mutable_tell_ends();
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
    batches_.Clear();
    capture_.Clear();
  }
  if (link) link->Close(why);
  sender_.Close();
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
