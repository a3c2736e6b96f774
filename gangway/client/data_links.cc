// Implementation of data_links.h.
#include "gangway/client/data_links.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/client/convert.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"

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

absl::Status SilentFor(std::chrono::milliseconds limit) {
  return absl::UnavailableError(absl::StrCat("nothing came from it for ", limit.count(), " ms"));
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
  const bool was_up = to.link != nullptr;
  const bool same = was_up && reachable && to.worker.incarnation() == worker.incarnation() &&
                    to.worker.data_address() == worker.data_address();
  if (same) return;
  const wire::Worker old = std::exchange(to.worker, worker);
  if (old.incarnation() != worker.incarnation()) to.previous = Incarnation(old.incarnation());
  if (old.incarnation() != worker.incarnation()) to.dropped.clear();  // it has no bytes of them
  HangUp(to, absl::CancelledError("the worker went down"));
  to.link = reachable ? LinkTo(to) : nullptr;
  to.refusal = absl::OkStatus();
  if (was_up) {
    TakePushes(to, [](const Pushing&) { return true; });
    options_.on_lost(
        key, LostStatus(old, "The process",
                        absl::UnavailableError(
                            why_down.empty() ? "the controller reports it as down" : why_down)));
  }
  if (workers_.size() <= options_.used_from_start) to.is_used = true;
  if (reachable && to.is_used && MayDial(to)) Dial(to);
}

void DataLinks::Admit(WorkerKey key) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || std::exchange(it->second.admits, true)) return;
  WorkerLink& to = it->second;
  const bool waits = to.link != nullptr && to.link->state() == transport::BulkLink::State::kDown;
  if (waits && to.is_used && options_.awaits_admission) Dial(to);
}

void DataLinks::Use(WorkerKey key) {
  {
    MutexLock lock(open_mutex_);
    if (!used_.insert(key).second) return;
  }
  options_.loop->Post([this, key] { UseOnLoop(key); });
}

void DataLinks::UseOnLoop(WorkerKey key) {
  WorkerLink& to = workers_[key];
  if (closed_ || std::exchange(to.is_used, true)) return;
  if (to.link != nullptr && MayDial(to)) Dial(to);
}

void DataLinks::Add(WorkerKey key, Push push) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || !IsFor(it->second, push.to)) {
    Released(push);
    return;
  }
  UseOnLoop(key);
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
  if (sender->frames->progress().queued > 0) return false;
  const transport::OutgoingShard shard = ShardOf(push);
  return sender->Send(FrameOf(push, shard, shard.Next(push.data.size()))).ok();
}

absl::Status DataLinks::Sender::Send(wire::Frame frame) {
  const wire::Bulk& bulk = frame.bulk();
  const bool proves = bulk.has_bytes() || bulk.has_placed();
  const UploadId upload{proves ? bulk.name().upload() : 0};  // 0: nothing to prove
  return frames->Send(std::move(frame), [this, upload] {
    if (upload == UploadId()) return;
    MutexLock lock(mutex);
    if (unproven.empty() || unproven.back() != upload) unproven.push_back(upload);
  });
}

wire::Frame DataLinks::FrameOf(const Push& push, const transport::OutgoingShard& shard,
                               const transport::OutgoingShard::Step& step) const {
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_session(options_.session.number());
  bulk.mutable_name()->set_upload(NumberOf(push.upload));
  bulk.mutable_name()->set_shard(push.shard);
  transport::PutStep(shard, step, bulk);
  return frame;
}

bool DataLinks::IsFor(const WorkerLink& worker, const Destination& to) {
  const Incarnation incarnation(worker.worker.incarnation());
  if (worker.link != nullptr) return to.incarnation == (to.next ? worker.previous : incarnation);
  return to.next && to.incarnation == incarnation;
}

void DataLinks::Withdraw(UploadId upload) {
  for (auto& [key, to] : workers_) {
    if (to.open != nullptr) {
      std::erase_if(to.open->reserved,
                    [upload](const auto& reserved) { return reserved.first.first == upload; });
    }
    TakePushes(to, [upload](const Pushing& pushing) { return pushing.push.upload == upload; });
  }
}

void DataLinks::TellDropped(UploadId upload) {
  if (closed_) return;
  for (auto& [key, to] : workers_) {
    if (to.link == nullptr) continue;
    to.dropped.push_back(upload);
    if (to.dropped.size() > kDroppedMax) to.dropped.pop_front();
    if (to.is_used) SchedulePump(key);
  }
}

void DataLinks::Close(const absl::Status& reason) {
  closed_ = true;
  {
    MutexLock lock(returns_->mutex);
    returns_->loop = nullptr;
  }
  for (auto& [key, to] : workers_) {
    TakePushes(to, [](const Pushing&) { return true; });
    HangUp(to, reason);
    to.link = nullptr;
  }
}

void DataLinks::HangUp(WorkerLink& to, const absl::Status& reason) {
  {
    MutexLock lock(open_mutex_);
    open_.erase({to.worker.island(), to.worker.index()});
  }
  to.open = nullptr;
  if (to.link != nullptr) to.link->Close(reason);
}

std::shared_ptr<transport::BulkLink> DataLinks::LinkTo(const WorkerLink& to) {
  const WorkerKey key(to.worker.island(), to.worker.index());
  transport::BulkLink::Options options;
  options.loop = options_.loop;
  options.dialer = &dialer_;
  options.address = to.worker.data_address();
  options.connect_limit = kConnectMax;
  options.link.queue_bytes_max = kQueueBytes;
  options.piece_fields_max = transport::kHostCallFieldsMax;
  options.stamp = {.epoch = options_.epoch, .incarnation = Incarnation(to.worker.incarnation())};
  transport::BulkLink::Events events;
  events.on_open = [this, key](const wire::HelloReply& reply) { OnOpen(key, reply); };
  events.on_writable = [this, key] { SchedulePump(key); };
  events.on_lost = [this, key](const absl::Status& why, transport::BulkLink::State was) {
    OnDown(key, why, was);
  };
  events.on_redial = [this, key] { Dial(workers_[key]); };
  return std::make_shared<transport::BulkLink>(std::move(options), std::move(events));
}

void DataLinks::Dial(WorkerLink& to) {
  wire::Hello hello;
  hello.set_role(wire::ROLE_DATA);
  hello.set_name(options_.name);
  hello.set_session(options_.session.number());
  hello.set_token(options_.token);
  const WorkerKey key(to.worker.island(), to.worker.index());
  to.link->Dial(std::move(hello), [this, key](wire::Frame frame) {
    OnFrame(key, std::move(frame));
    return absl::OkStatus();
  });
}

void DataLinks::OnOpen(WorkerKey key, const wire::HelloReply& reply) {
  WorkerLink& to = workers_[key];
  to.link->Settle();
  to.refusal = absl::OkStatus();
  to.open = std::make_shared<Connection>();
  to.open->sender =
      std::make_shared<Sender>(to.link->sender(), Incarnation(to.worker.incarnation()));
  {
    MutexLock lock(open_mutex_);
    open_[key] = to.open->sender;
  }
  to.open->segments.Connect(reply);
  // The worker may have answered on an earlier link.
  if (to.link->hellos() > 1)
    options_.on_lost(key, StreamLost(to, absl::UnavailableError("it broke")));
  Pump(key);
}

void DataLinks::OnFrame(WorkerKey key, wire::Frame frame) {
  WorkerLink& to = workers_[key];
  if (frame.has_heartbeat()) return OnReply(to, frame.heartbeat().time_ns());
  if (frame.has_host_callback())
    return OnHostCallback(key, std::move(*frame.mutable_host_callback()));
  const ConnectionPtr connection = to.open;
  if (frame.has_bulk()) OnBulk(key, connection, frame.bulk());
}

void DataLinks::OnReply(WorkerLink& to, uint64_t number) {
  Question& question = to.open->question;
  if (question.state != Asked::kSent || number != question.number) return;
  question = {};
  to.link->Rest();
}

void DataLinks::OnBulk(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk) {
  for (uint64_t segment : bulk.gone().segments()) connection->segments.Forget(segment);
  if (bulk.has_place_answer()) return OnPlace(key, *connection, bulk.name(), bulk.place_answer());
  if (!bulk.name().has_fetch()) return;  // a worker sends nothing else
  if (bulk.has_lent()) return OnFetched(key, connection, bulk);
  if (bulk.has_bytes() || bulk.has_failed()) options_.on_shard(bulk);
}

void DataLinks::Say(WorkerKey key, const ConnectionPtr& connection, wire::Bulk word) {
  WorkerLink& to = workers_[key];
  if (closed_ || to.open != connection) return;
  connection->words.push_back(std::move(word));
  (void)SendWords(to);
}

void DataLinks::OnHostCallback(WorkerKey key, wire::HostCallback callback) {
  if (!options_.on_host_callback) return;
  auto send = [this, key,
               asked = std::weak_ptr(workers_[key].open)](wire::HostCallbackReply reply) {
    WorkerLink& to = workers_[key];
    const ConnectionPtr now = asked.lock();
    if (closed_ || now == nullptr || to.open != now) return;
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
  Connection& connection = *to.open;
  for (; !connection.replies.empty(); connection.replies.pop_front()) {
    if (!connection.sender->Send(connection.replies.front()).ok()) return false;
  }
  for (; !to.dropped.empty(); to.dropped.pop_front()) {
    wire::Frame frame;
    frame.mutable_bulk()->mutable_name()->set_session(options_.session.number());
    frame.mutable_bulk()->mutable_name()->set_upload(NumberOf(to.dropped.front()));
    frame.mutable_bulk()->mutable_dropped();
    if (!connection.sender->Send(std::move(frame)).ok()) return false;
  }
  for (; !connection.words.empty(); connection.words.pop_front()) {
    wire::Frame frame;
    *frame.mutable_bulk() = connection.words.front();
    if (!connection.sender->Send(std::move(frame)).ok()) return false;
  }
  return true;
}

absl::Status DataLinks::StreamLost(const WorkerLink& to, const absl::Status& why) const {
  return LostStatus(to.worker, "The data stream", why,
                    options_.suspicion ? options_.suspicion() : "");
}

void DataLinks::OnDown(WorkerKey key, const absl::Status& why, transport::BulkLink::State was) {
  WorkerLink& to = workers_[key];
  const bool welcomed = was == transport::BulkLink::State::kOpen;  // else nothing went over it
  if (!welcomed) to.refusal = why;
  const absl::Status status = StreamLost(to, why);
  LoseSent(to, status);
  if (welcomed) options_.on_lost(key, status);
  if (to.link != nullptr) to.link->Redial();
}

void DataLinks::GiveUpSilent(WorkerKey key) {
  WorkerLink& to = workers_[key];
  const absl::Status why = SilentFor(kSilenceMax);
  to.link->Close(why);
  const absl::Status status = StreamLost(to, why);
  LoseSent(to, status);
  GiveUp(key, status);
  if (to.link != nullptr) to.link->Redial();
}

// The link takes nothing more. Of what it took, nothing is known.
void DataLinks::LoseSent(WorkerLink& to, const absl::Status& why) {
  const ConnectionPtr connection = to.open;
  HangUp(to, why);
  std::set<UploadId> lost =
      TakePushes(to, [](const Pushing& pushing) { return pushing.shard.begun(); });
  if (connection != nullptr) {
    lost.insert(connection->question.uploads.begin(), connection->question.uploads.end());
    const std::shared_ptr<Sender>& sender = connection->sender;
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
  for (UploadId upload : lost) options_.on_upload_lost(upload, why);
}

template <typename Of>
std::set<UploadId> DataLinks::TakePushes(WorkerLink& to, Of of) {
  std::set<UploadId> taken;
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
  for (UploadId upload : TakePushes(workers_[key], [](const Pushing&) { return true; }))
    options_.on_upload_lost(upload, why);
  options_.on_lost(key, why);
}

bool DataLinks::IsBusy(const WorkerLink& to) {
  if (!to.active.empty() || !to.placing.empty() || !to.waiting.empty()) return true;
  if (to.open == nullptr) return false;
  if (to.open->question.state != Asked::kNothing) return true;
  MutexLock lock(to.open->sender->mutex);
  return !to.open->sender->unproven.empty();
}

bool DataLinks::Watch(const std::set<WorkerKey>& awaited) {
  if (closed_) return false;
  const auto now = Clock::now();
  const Clock::duration stood_still = looks_.StoodStill(now, kWatchInterval);
  std::vector<WorkerKey> busy;
  for (const auto& [key, to] : workers_) {
    if (awaited.contains(key) || IsBusy(to)) busy.push_back(key);
  }
  for (WorkerKey key : busy) Look(key, now, stood_still);
  return !busy.empty();
}

void DataLinks::Look(WorkerKey key, Clock::time_point now, Clock::duration stood_still) {
  WorkerLink& to = workers_[key];
  if (to.link == nullptr || !MayDial(to)) return;
  if (!to.is_used) return UseOnLoop(key);
  const std::shared_ptr<transport::BulkLink> link = to.link;
  link->Skip(stood_still, now);
  if (!link->is_open()) {
    if (link->IsSilent(now, kWelcomeMax)) link->Lose(SilentFor(kWelcomeMax));
    if (link->DownFor(now) < kDownMax) return;
    // The last attempt may be under way; why the one before failed says more, such as a certificate that has expired.
    return GiveUp(key, StreamLost(to, absl::UnavailableError(absl::StrCat(
                                          "it cannot be opened", to.refusal.ok() ? "" : ": ",
                                          std::string(to.refusal.message())))));
  }
  if (link->IsSilent(now, kSilenceMax)) return GiveUpSilent(key);
  Ask(to, now);
}

void DataLinks::Ask(WorkerLink& to, Clock::time_point now) {
  Question& question = to.open->question;
  if (question.state == Asked::kNothing) {
    MutexLock lock(to.open->sender->mutex);
    question = {.state = Asked::kUnsent, .uploads = std::exchange(to.open->sender->unproven, {})};
  }
  to.link->Await(now);
  if (question.state == Asked::kSent) return;
  const std::optional<uint64_t> number = to.link->Ask();
  if (!number) return;
  question.state = Asked::kSent;
  question.number = *number;
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
  while (to.open != nullptr) {
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
    const bool placeable = to.open->segments.IsConnected() && !next.unplaceable &&
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
  Sender& sender = *to.open->sender;
  const bool full = sender.frames->progress().queued >= kQueueBytes;
  if (full && pushing.shard.target() == nullptr) return false;  // on_writable resumes
  const transport::OutgoingShard::Step step = pushing.shard.Next(kChunkBytes);
  if (step.way != transport::OutgoingShard::Way::kWritten &&
      !sender.Send(FrameOf(pushing.push, pushing.shard, step)).ok())
    return false;
  pushing.shard.Advance(step);
  return true;
}

}  // namespace gangway::client
