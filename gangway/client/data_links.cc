// Implementation of data_links.h.
#include "gangway/client/data_links.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/client/convert.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::client {
namespace {

transport::OutgoingShard ShardOf(const Push& push) {
  return transport::OutgoingShard(std::as_bytes(std::span(push.data)));
}

void Released(Push& push) {
  if (push.released) std::exchange(push.released, nullptr)();
}

// `suspicion`: another reason, which a retry would meet again; empty: none is known.
absl::Status LostStatus(const wire::Worker& worker, const std::string& what,
                        const absl::Status& why, const std::string& suspicion = "") {
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat(what, " of ", WorkerName(worker), " was lost: ", std::string(why.message()),
                   suspicion.empty() ? "" : "; ", suspicion),
      suspicion.empty()
          ? "Retry: the arrays of a worker that is still up are not lost with its data stream."
          : "Look at the controller's host and the network to it; if it does not come back, the "
            "session is lost with its arrays.");
  failure.set_worker(WorkerName(worker));
  failure.set_incarnation(worker.incarnation());
  return wire::ToStatus(failure);
}

}  // namespace

DataLinks::DataLinks(Options options)
    : options_(std::move(options)), dialer_(options_.loop, options_.transport) {
  MutexLock lock(returns_->mutex);
  returns_->loop = options_.loop;
}

void DataLinks::SetWorker(const wire::Worker& worker, bool up, const std::string& why_down) {
  if (closed_) return;
  WorkerKey key(worker.island(), worker.index());
  WorkerLink& to = workers_[key];
  const bool reachable = up && !worker.data_address().empty();
  const bool same = to.up && reachable && to.worker.incarnation() == worker.incarnation() &&
                    to.worker.data_address() == worker.data_address();
  if (same) return;
  const bool was_up = std::exchange(to.up, reachable);
  const wire::Worker old = std::exchange(to.worker, worker);
  if (old.incarnation() != worker.incarnation()) to.previous = Incarnation(old.incarnation());
  if (old.incarnation() != worker.incarnation()) to.dropped.clear();  // it has no bytes of them
  HangUp(to, absl::CancelledError("the worker went down"));
  to.failures = 0;
  to.hellos = 0;
  to.refusal = absl::OkStatus();
  if (was_up) {
    TakePushes(to, [](const Pushing&) { return true; });
    options_.on_lost(
        key, LostStatus(old, "The process",
                        absl::UnavailableError(
                            why_down.empty() ? "the controller reports it as down" : why_down)));
  }
  if (reachable && MayDial(to)) Dial(key);
}

void DataLinks::Admit(WorkerKey key) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || std::exchange(it->second.admits, true)) return;
  if (it->second.up && it->second.attempt == nullptr && options_.awaits_admission) Dial(key);
}

void DataLinks::Add(WorkerKey key, Push push) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || !IsFor(it->second, push.to)) {
    Released(push);
    return;
  }
  transport::OutgoingShard shard = ShardOf(push);
  Pushing pushing{.push = std::move(push), .shard = std::move(shard)};
  const bool asked = TakeReservation(it->second, pushing);
  if (!asked && pushing.push.data.size() < kPlacedBytesMin) {
    Begin(it->second, std::move(pushing));
  } else {
    (asked ? it->second.placing : it->second.waiting).push_back(std::move(pushing));
  }
  SchedulePump(key);
}

bool DataLinks::PushNow(WorkerKey key, const Push& push) {
  std::shared_ptr<Sender> sender;
  {
    MutexLock lock(open_mutex_);
    auto it = open_.find(key);
    if (it == open_.end()) return false;
    sender = it->second;
  }
  if (push.to.next || push.to.incarnation != sender->incarnation) return false;
  if (sender->link->queued_bytes() > 0) return false;
  const transport::OutgoingShard shard = ShardOf(push);
  return sender->Send(FrameOf(*sender, push, shard, shard.Next(push.data.size()))).ok();
}

absl::Status DataLinks::Sender::Send(wire::Frame frame) {
  MutexLock lock(mutex);
  frame.set_epoch(epoch);
  frame.set_incarnation(incarnation.number());
  frame.set_sequence(sequence + 1);
  const wire::Bulk& bulk = frame.bulk();
  const bool proves = bulk.has_bytes() || bulk.has_placed();
  const uint64_t upload = proves ? bulk.name().upload() : 0;  // 0: nothing to prove
  const size_t bytes = frame.ByteSizeLong();
  GANGWAY_RETURN_IF_ERROR(link->Send(std::move(frame)));
  ++sequence;
  sent_bytes += bytes;
  if (upload != 0 && (unproven.empty() || unproven.back() != upload)) unproven.push_back(upload);
  return absl::OkStatus();
}

wire::Frame DataLinks::FrameOf(const Sender& sender, const Push& push,
                               const transport::OutgoingShard& shard,
                               const transport::OutgoingShard::Step& step) {
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_session(sender.session.number());
  bulk.mutable_name()->set_upload(push.upload);
  bulk.mutable_name()->set_shard(push.shard);
  transport::PutStep(shard, step, bulk);
  return frame;
}

bool DataLinks::IsFor(const WorkerLink& worker, const Destination& to) {
  const Incarnation incarnation(worker.worker.incarnation());
  if (worker.up) return to.incarnation == (to.next ? worker.previous : incarnation);
  return to.next && to.incarnation == incarnation;
}

void DataLinks::Withdraw(uint64_t upload) {
  for (auto& [key, to] : workers_) {
    if (to.attempt != nullptr) {
      std::erase_if(to.attempt->reserved,
                    [upload](const auto& reserved) { return reserved.first.first == upload; });
    }
    TakePushes(to, [upload](const Pushing& pushing) { return pushing.push.upload == upload; });
  }
}

void DataLinks::TellDropped(uint64_t upload) {
  if (closed_) return;
  for (auto& [key, to] : workers_) {
    if (!to.up) continue;
    to.dropped.push_back(upload);
    if (to.dropped.size() > kDroppedMax) to.dropped.pop_front();
    SchedulePump(key);
  }
}

void DataLinks::Close(const absl::Status& reason) {
  closed_ = true;
  {
    MutexLock lock(returns_->mutex);
    returns_->loop = nullptr;
  }
  for (auto& [key, to] : workers_) {
    to.up = false;
    TakePushes(to, [](const Pushing&) { return true; });
    HangUp(to, reason);
  }
}

void DataLinks::HangUp(WorkerLink& to, const absl::Status& reason) {
  {
    MutexLock lock(open_mutex_);
    open_.erase({to.worker.island(), to.worker.index()});
  }
  auto attempt = std::exchange(to.attempt, nullptr);
  // The attempt must drop the link, because the link's callbacks hold the attempt.
  if (attempt && attempt->sender) std::exchange(attempt->sender, nullptr)->link->Close(reason);
}

void DataLinks::Dial(WorkerKey key) {
  WorkerLink& to = workers_[key];
  auto attempt = std::make_shared<Attempt>();
  to.attempt = attempt;
  if (to.failures == 0) to.down_since = Clock::now();
  transport::LinkEvents events;
  events.executor = options_.loop;
  events.on_frame = [this, key, attempt](wire::Frame frame) {
    OnFrame(key, attempt, std::move(frame));
  };
  events.on_writable = [this, key] { SchedulePump(key); };
  events.on_closed = [this, key, attempt](const absl::Status& why) { Lost(key, attempt, why); };
  dialer_.Dial({.address = to.worker.data_address(),
                .events = transport::JoinPieces(std::move(events), transport::kHostCallFieldsMax),
                .options = {.queue_bytes_max = kQueueBytes},
                .limit = options_.connect_limit,
                .wanted = [this, key, attempt] { return workers_[key].attempt == attempt; },
                .dialed =
                    [this, key, attempt](absl::StatusOr<std::shared_ptr<transport::Link>> link) {
                      Dialed(key, attempt, std::move(link));
                    }});
}

void DataLinks::Dialed(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
                       absl::StatusOr<std::shared_ptr<transport::Link>> link) {
  WorkerLink& to = workers_[key];
  if (closed_ || to.attempt != attempt) {
    if (link.ok()) (*link)->Close(absl::CancelledError("no longer needed"));
    return;
  }
  if (!link.ok() || attempt->closed) {
    Lost(key, attempt, link.ok() ? attempt->why : link.status());
    return;
  }
  attempt->sender = std::make_shared<Sender>(
      *std::move(link), options_.epoch, Incarnation(to.worker.incarnation()), options_.session);
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(wire::ROLE_DATA);
  hello->set_name(options_.name);
  hello->set_process_id(ProcessId());
  hello->set_session(options_.session.number());
  hello->set_token(options_.token);
  absl::Status sent = attempt->sender->Send(std::move(frame));
  if (!sent.ok()) return Lost(key, attempt, sent);
  attempt->silence.Await(Clock::now());
  ++to.hellos;
}

void DataLinks::OnFrame(WorkerKey key, const std::shared_ptr<Attempt>& attempt, wire::Frame frame) {
  WorkerLink& to = workers_[key];
  if (closed_ || to.attempt != attempt) return;
  attempt->silence.Hear(Clock::now());
  if (frame.has_hello_reply()) {
    if (frame.hello_reply().failure().code() != 0)
      return Lost(key, attempt, wire::ToStatus(frame.hello_reply().failure()));
    OnGreeted(to, *attempt, frame.hello_reply());
    // The worker may have answered on an earlier link.
    if (to.hellos > 1) options_.on_lost(key, StreamLost(to, absl::UnavailableError("it broke")));
    return Pump(key);
  }
  if (frame.has_heartbeat()) {
    Question& question = attempt->question;
    if (!question.open || frame.heartbeat().time_ns() != question.number) return;
    question.open = false;
    attempt->silence.Rest();
    return question.uploads.clear();
  }
  if (frame.has_host_callback())
    return OnHostCallback(key, attempt, std::move(*frame.mutable_host_callback()));
  if (frame.has_bulk()) OnBulk(key, attempt, frame.bulk());
}

void DataLinks::OnBulk(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
                       const wire::Bulk& bulk) {
  for (uint64_t segment : bulk.gone().segments()) attempt->segments.Forget(segment);
  if (bulk.has_place_answer()) return OnPlace(key, *attempt, bulk.name(), bulk.place_answer());
  if (!bulk.name().has_fetch()) return;  // a worker sends nothing else
  if (bulk.has_lent() || bulk.has_bytes() || bulk.has_failed()) workers_[key].failures = 0;
  if (bulk.has_lent()) return OnFetched(key, attempt, bulk);
  if (bulk.has_bytes() || bulk.has_failed()) options_.on_shard(bulk);
}

void DataLinks::OnGreeted(WorkerLink& to, Attempt& attempt, const wire::HelloReply& reply) {
  to.failures = 0;
  attempt.welcomed = true;
  attempt.silence.Rest();
  {
    MutexLock lock(open_mutex_);
    open_[{to.worker.island(), to.worker.index()}] = attempt.sender;
  }
  attempt.segments.Connect(reply);
}

void DataLinks::Say(WorkerKey key, const std::shared_ptr<Attempt>& attempt, wire::Bulk word) {
  WorkerLink& to = workers_[key];
  if (closed_ || to.attempt != attempt) return;
  attempt->words.push_back(std::move(word));
  (void)SendWords(to);
}

void DataLinks::OnHostCallback(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
                               wire::HostCallback callback) {
  if (!options_.on_host_callback) return;
  auto send = [this, key, asked = std::weak_ptr(attempt)](wire::HostCallbackReply reply) {
    WorkerLink& to = workers_[key];
    const std::shared_ptr<Attempt> now = asked.lock();
    if (closed_ || now == nullptr || to.attempt != now) return;
    wire::Frame frame;
    *frame.mutable_host_callback_reply() = std::move(reply);
    for (wire::Frame& part : transport::CutPieces(std::move(frame)))
      now->replies.push_back(std::move(part));
    (void)SendWords(to);
  };
  options_.on_host_callback(std::move(callback), [returns = returns_, send = std::move(send)](
                                                     wire::HostCallbackReply reply) {
    MutexLock lock(returns->mutex);
    if (returns->loop == nullptr) return;
    returns->loop->Post([send, reply = std::move(reply)]() mutable { send(std::move(reply)); });
  });
}

// False: the link takes no more for now.
bool DataLinks::SendWords(WorkerLink& to) {
  Attempt& attempt = *to.attempt;
  for (; !attempt.replies.empty(); attempt.replies.pop_front()) {
    if (!attempt.sender->Send(attempt.replies.front()).ok()) return false;
  }
  for (; !to.dropped.empty(); to.dropped.pop_front()) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_session(options_.session.number());
    frame.mutable_bulk()->mutable_name()->set_upload(to.dropped.front());
    frame.mutable_bulk()->mutable_dropped();
    if (!attempt.sender->Send(std::move(frame)).ok()) return false;
  }
  for (; !attempt.words.empty(); attempt.words.pop_front()) {
    wire::Frame frame;
    *frame.mutable_bulk() = attempt.words.front();
    if (!attempt.sender->Send(std::move(frame)).ok()) return false;
  }
  return true;
}

absl::Status DataLinks::StreamLost(const WorkerLink& to, const absl::Status& why) const {
  return LostStatus(to.worker, "The data stream", why,
                    options_.suspicion ? options_.suspicion() : "");
}

void DataLinks::Lost(WorkerKey key, const std::shared_ptr<Attempt>& attempt, absl::Status why,
                     bool silent) {
  WorkerLink& to = workers_[key];
  const bool welcomed = attempt->welcomed;  // otherwise nothing went over it
  attempt->closed = true;
  attempt->why = why;
  if (closed_ || to.attempt != attempt) return;
  const std::shared_ptr<Sender> sender = attempt->sender;
  HangUp(to, why);  // its link takes nothing more from here on
  std::set<uint64_t> lost =
      TakePushes(to, [](const Pushing& pushing) { return pushing.shard.begun(); });
  lost.insert(attempt->question.uploads.begin(), attempt->question.uploads.end());
  if (sender != nullptr) {
    MutexLock lock(sender->mutex);
    lost.insert(sender->unproven.begin(), sender->unproven.end());
  }
  for (Pushing& pushing : std::exchange(to.placing, {})) Begin(to, std::move(pushing));
  auto must_be_sent = [](Pushing& pushing) {
    pushing.shard.WriteInto(nullptr);
    pushing.unplaceable = true;
  };
  to.active.ForEach(must_be_sent);
  std::for_each(to.waiting.begin(), to.waiting.end(), must_be_sent);
  const absl::Status status = StreamLost(to, why);
  const auto now = Clock::now();
  ++to.failures;
  to.refusal = welcomed ? absl::OkStatus() : why;
  for (uint64_t upload : lost) options_.on_upload_lost(upload, status);
  if (welcomed) to.down_since = now;
  if (silent) {
    GiveUp(key, status);
  } else if (welcomed) {
    options_.on_lost(key, status);
  }
  auto delay = options_.retry_first * (1 << std::min(to.failures - 1, options_.attempts));
  options_.loop->PostAt(now + delay, [this, key, incarnation = to.worker.incarnation()] {
    WorkerLink& again = workers_[key];
    if (closed_ || !again.up || again.attempt) return;
    if (again.worker.incarnation() == incarnation) Dial(key);
  });
}

template <typename Of>
std::set<uint64_t> DataLinks::TakePushes(WorkerLink& to, Of of) {
  std::set<uint64_t> taken;
  for (Pushing& pushing : to.active.TakeIf(of)) {
    taken.insert(pushing.push.upload);
    Released(pushing.push);
  }
  for (auto* queue : {&to.placing, &to.waiting}) {
    for (Pushing& pushing : std::exchange(*queue, {})) {
      if (of(pushing)) {
        taken.insert(pushing.push.upload);
        Released(pushing.push);
      } else {
        queue->push_back(std::move(pushing));
      }
    }
  }
  return taken;
}

void DataLinks::GiveUp(WorkerKey key, const absl::Status& why) {
  for (uint64_t upload : TakePushes(workers_[key], [](const Pushing&) { return true; }))
    options_.on_upload_lost(upload, why);
  options_.on_lost(key, why);
}

bool DataLinks::IsBusy(const WorkerLink& to) {
  if (!to.active.empty() || !to.placing.empty() || !to.waiting.empty()) return true;
  if (to.attempt == nullptr || to.attempt->sender == nullptr) return false;
  if (to.attempt->question.open) return true;
  MutexLock lock(to.attempt->sender->mutex);
  return !to.attempt->sender->unproven.empty();
}

bool DataLinks::Watch(const std::set<WorkerKey>& awaited) {
  if (closed_) return false;
  const auto now = Clock::now();
  const Clock::duration since =
      now - watched_;  // it stood still, or did not watch, if that is long
  const Clock::duration stood_still = since > 2 * kWatchInterval ? since : Clock::duration();
  std::vector<WorkerKey> busy;
  for (const auto& [key, to] : workers_) {
    if (awaited.contains(key) || IsBusy(to)) busy.push_back(key);
  }
  for (WorkerKey key : busy) Look(key, now, stood_still);
  watched_ = now;
  return !busy.empty();
}

void DataLinks::Look(WorkerKey key, Clock::time_point now, Clock::duration stood_still) {
  WorkerLink& to = workers_[key];
  const std::shared_ptr<Attempt> attempt = to.attempt;
  if (!to.up || !MayDial(to)) return;
  const auto silent_for = [](std::chrono::milliseconds limit) {
    return absl::UnavailableError(absl::StrCat("nothing came from it for ", limit.count(), " ms"));
  };
  if (attempt != nullptr) attempt->silence.Skip(stood_still, now);
  if (attempt == nullptr || !attempt->welcomed) {
    to.down_since = std::min(now, to.down_since + stood_still);
    if (attempt != nullptr && attempt->silence.IsTooLong(now, kWelcomeMax))
      Lost(key, attempt, silent_for(kWelcomeMax));
    if (now - to.down_since < kDownMax) return;
    // The last attempt may be under way; why the one before failed says more, such as a certificate that has expired.
    return GiveUp(key, StreamLost(to, absl::UnavailableError(absl::StrCat(
                                          "it cannot be opened", to.refusal.ok() ? "" : ": ",
                                          std::string(to.refusal.message())))));
  }
  NoteProgress(*attempt, now);
  if (attempt->silence.IsTooLong(now, kSilenceMax))
    return Lost(key, attempt, silent_for(kSilenceMax), /*silent=*/true);
  Ask(*attempt, now);
}

// A question waits behind what is queued, chunks and replies to host callbacks, perhaps for long on a slow network.
void DataLinks::NoteProgress(Attempt& attempt, Clock::time_point now) {
  const size_t queued = attempt.sender->link->queued_bytes();
  MutexLock lock(attempt.sender->mutex);
  const uint64_t taken = attempt.sender->sent_bytes;
  const uint64_t gone = taken > queued ? taken - queued : 0;
  if (attempt.queued > 0 && gone > attempt.gone) attempt.silence.Hear(now);
  attempt.queued = queued;
  attempt.gone = gone;
}

void DataLinks::Ask(Attempt& attempt, Clock::time_point now) {
  Question& question = attempt.question;
  if (!question.open) {
    MutexLock lock(attempt.sender->mutex);
    question = {.number = question.number + 1,
                .open = true,
                .uploads = std::exchange(attempt.sender->unproven, {})};
  }
  attempt.silence.Await(now);
  if (question.sent) return;
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(question.number);
  question.sent = attempt.sender->Send(std::move(frame)).ok();
}

void DataLinks::SchedulePump(WorkerKey key) {
  WorkerLink& to = workers_[key];
  if (to.pumping || closed_) return;
  to.pumping = true;
  options_.loop->Post([this, key] {
    workers_[key].pumping = false;
    Pump(key);
  });
}

void DataLinks::Pump(WorkerKey key) {
  WorkerLink& to = workers_[key];
  size_t turn = 0;
  while (to.attempt && to.attempt->sender && to.attempt->welcomed) {
    // on_writable, or a place, resumes
    if (!SendWords(to) || !Activate(to) || to.active.empty()) return;
    if (turn >= kTurnBytes) return SchedulePump(key);
    auto next = to.active.Take();
    Pushing& pushing = next->item;
    const size_t before = pushing.shard.offset();
    // Otherwise on_writable or on_closed resumes.
    if (!SendPiece(to, pushing)) return to.active.Undo(*std::move(next));
    turn += pushing.shard.offset() - before + 64;
    if (!pushing.shard.done()) {
      to.active.Again(*std::move(next));
    } else {
      Released(pushing.push);  // may call the client, which posts or sends
    }
  }
}

void DataLinks::Begin(WorkerLink& to, Pushing pushing) {
  using transport::ShardSize;
  const bool small = pushing.push.data.size() < kPlacedBytesMin;
  to.active.Push(options_.session, small ? ShardSize::kSmall : ShardSize::kLarge,
                 std::move(pushing));
}

// False: the link takes no more for now.
bool DataLinks::Activate(WorkerLink& to) {
  while (to.active.size(transport::ShardSize::kLarge) + to.placing.size() < kInterleaved &&
         !to.waiting.empty()) {
    Pushing& next = to.waiting.front();
    const bool placeable = to.attempt->segments.IsConnected() && !next.unplaceable &&
                           next.shard.target() == nullptr && !next.shard.begun() &&
                           next.push.data.size() >= kPlacedBytesMin;
    if (placeable && !AskForPlace(to, next.push, next.push.data.size())) return false;
    if (placeable) {
      to.placing.push_back(std::move(next));
    } else {
      Begin(to, std::move(next));
    }
    to.waiting.pop_front();
  }
  return true;
}

// False: the link takes no more for now.
bool DataLinks::SendPiece(WorkerLink& to, Pushing& pushing) {
  Sender& sender = *to.attempt->sender;
  const bool full = sender.link->queued_bytes() >= kQueueBytes;
  if (full && pushing.shard.target() == nullptr) return false;  // on_writable resumes
  const transport::OutgoingShard::Step step = pushing.shard.Next(kChunkBytes);
  if (step.way != transport::OutgoingShard::Way::kWritten &&
      !sender.Send(FrameOf(sender, pushing.push, pushing.shard, step)).ok())
    return false;
  pushing.shard.Advance(step);
  return true;
}

}  // namespace gangway::client
