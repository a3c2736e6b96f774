// Implementation of data_links.h.
#include "gangway/client/data_links.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/fork.h"
#include "gangway/base/status.h"
#include "gangway/client/convert.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

wire::Frame FrameOf(SessionId session, const Push& push, const transport::OutgoingShard& shard,
                    const transport::OutgoingShard::Step& step) {
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_session(session.number());
  bulk.mutable_name()->set_upload(NumberOf(push.upload));
  bulk.mutable_name()->set_shard(push.shard);
  transport::PutStep(shard, step, bulk);
  return frame;
}

// False: the link takes no more for now.
bool SendPiece(SessionId session, ConfirmingSender& sender, Pushing& pushing) {
  const bool full = sender.queued_bytes() >= DataLinks::kQueueBytes;
  if (full && pushing.shard.target() == nullptr) return false;  // on_writable resumes
  const transport::OutgoingShard::Step step = pushing.shard.Next(DataLinks::kChunkBytes);
  if (step.way != transport::OutgoingShard::Way::kWritten &&
      !sender.Send(FrameOf(session, pushing.push, pushing.shard, step)).ok())
    return false;
  pushing.shard.Advance(step);
  return true;
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
    to.pushes.TakeAll();
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
    return Release(push);
  }
  UseOnLoop(key);
  WorkerLink& to = it->second;
  Pushing pushing(std::move(push));
  if (to.open != nullptr && to.open->TakeReservation(pushing)) {
    to.pushes.AddPlacing(std::move(pushing));
  } else {
    to.pushes.Add(std::move(pushing));
  }
  SchedulePump(key);
}

bool DataLinks::PushNow(WorkerKey key, const Push& push) {
  std::shared_ptr<ConfirmingSender> sender;
  {
    MutexLock lock(open_mutex_);
    auto it = open_.find(key);
    if (it == open_.end()) return false;
    sender = it->second;
  }
  if (push.to.next || push.to.incarnation != sender->incarnation()) return false;
  if (sender->queued_bytes() > 0) return false;
  const transport::OutgoingShard shard = BytesOf(push);
  return sender->Send(FrameOf(options_.session, push, shard, shard.Next(push.data.size()))).ok();
}

bool DataLinks::IsFor(const WorkerLink& worker, const Destination& to) {
  const Incarnation incarnation(worker.worker.incarnation());
  if (worker.link != nullptr) return to.incarnation == (to.next ? worker.previous : incarnation);
  return to.next && to.incarnation == incarnation;
}

void DataLinks::Withdraw(UploadId upload) {
  for (auto& [key, to] : workers_) {
    if (to.open != nullptr) to.open->Withdraw(upload);
    to.pushes.TakeIf([upload](const Pushing& pushing) { return pushing.push.upload == upload; });
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
    to.pushes.TakeAll();
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
  to.open = std::make_shared<WorkerConnection>(
      options_.session,
      std::make_shared<ConfirmingSender>(to.link->sender(), Incarnation(to.worker.incarnation())),
      reply);
  {
    MutexLock lock(open_mutex_);
    open_[key] = to.open->sender();
  }
  // The worker may have answered on an earlier link.
  if (to.link->hellos() > 1)
    options_.on_lost(key, StreamLost(to, absl::UnavailableError("it broke")));
  Pump(key);
}

void DataLinks::OnFrame(WorkerKey key, wire::Frame frame) {
  WorkerLink& to = workers_[key];
  if (frame.has_heartbeat())
    return to.open->sender()->OnReply(*to.link, frame.heartbeat().time_ns());
  if (frame.has_host_callback())
    return OnHostCallback(key, std::move(*frame.mutable_host_callback()));
  const ConnectionPtr connection = to.open;
  if (frame.has_bulk()) OnBulk(key, connection, frame.bulk());
}

void DataLinks::OnBulk(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk) {
  for (uint64_t segment : bulk.gone().segments()) connection->segments().Forget(segment);
  if (bulk.has_place_answer()) return OnPlace(key, *connection, bulk.name(), bulk.place_answer());
  if (!bulk.name().has_fetch()) return;  // a worker sends nothing else
  if (bulk.has_lent()) return OnFetched(key, connection, bulk);
  if (bulk.has_bytes() || bulk.has_failed()) options_.on_shard(bulk);
}

void DataLinks::Say(WorkerKey key, const ConnectionPtr& connection, wire::Bulk word) {
  WorkerLink& to = workers_[key];
  if (closed_ || to.open != connection) return;
  connection->Say(std::move(word));
  (void)connection->SendWords(to.dropped);
}

void DataLinks::OnHostCallback(WorkerKey key, wire::HostCallback callback) {
  if (!options_.on_host_callback) return;
  auto send = [this, key,
               asked = std::weak_ptr(workers_[key].open)](wire::HostCallbackReply reply) {
    WorkerLink& to = workers_[key];
    const ConnectionPtr now = asked.lock();
    if (closed_ || now == nullptr || to.open != now) return;
    now->Reply(std::move(reply));
    (void)now->SendWords(to.dropped);
  };
  options_.on_host_callback(std::move(callback), [returns = returns_, send = std::move(send)](
                                                     wire::HostCallbackReply reply) {
    MutexLock lock(returns->mutex);
    if (returns->loop == nullptr) return;
    returns->loop->Post([send, reply = std::move(reply)]() mutable { send(std::move(reply)); });
  });
}

void DataLinks::Reserve(WorkerKey key, const Push& wish,
                        std::function<void(std::shared_ptr<char> place)> placed) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || wish.to.next || !IsFor(it->second, wish.to)) return;
  UseOnLoop(key);
  const ConnectionPtr connection = it->second.open;
  if (connection != nullptr) connection->Reserve(wish, std::move(placed));
}

void DataLinks::OnPlace(WorkerKey key, WorkerConnection& connection, const wire::ShardName& name,
                        const wire::PlaceAnswer& answer) {
  const PushName push(UploadId(name.upload()), name.shard());
  if (connection.OnReserved(push, answer)) return;
  const bool begun = workers_[key].pushes.OnPlace(
      push, [&](size_t bytes) { return connection.PlaceOf(answer, bytes); });
  if (begun) SchedulePump(key);
}

// The shard is read in place. The worker keeps the place until its last reader is reported gone or
// the stream ends; the mapping outlives the stream.
void DataLinks::OnFetched(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk) {
  const wire::SharedBlock& place = bulk.lent();
  auto mapped = connection->segments().Find(place);
  wire::Bulk word;
  *word.mutable_name() = bulk.name();
  if (mapped == nullptr) {
    word.mutable_resend();
    return Say(key, connection, std::move(word));
  }
  word.mutable_received();
  auto give_back = [this, returns = returns_, key,
                    weak = std::weak_ptr<WorkerConnection>(connection), word, mapped,
                    forks = ForkGeneration()](const char*) {
    if (ForkGeneration() != forks) return;  // a child's copy of the parent's reference
    MutexLock lock(returns->mutex);
    if (returns->loop == nullptr) return;
    returns->loop->Post([this, key, weak, word] {
      if (auto still = weak.lock()) Say(key, still, word);
    });
  };
  const char* bytes = reinterpret_cast<const char*>(mapped.get());
  options_.on_place(FetchId(bulk.name().fetch()), bulk.name().shard(),
                    std::shared_ptr<const char>(bytes, std::move(give_back)), place.size());
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
      to.pushes.TakeIf([](const Pushing& pushing) { return pushing.shard.begun(); });
  if (connection != nullptr) lost.merge(connection->sender()->Unproven());
  to.pushes.LosePlaces();
  for (UploadId upload : lost) options_.on_upload_lost(upload, why);
}

void DataLinks::GiveUp(WorkerKey key, const absl::Status& why) {
  for (UploadId upload : workers_[key].pushes.TakeAll()) options_.on_upload_lost(upload, why);
  options_.on_lost(key, why);
}

bool DataLinks::IsBusy(const WorkerLink& to) {
  return !to.pushes.empty() || (to.open != nullptr && to.open->sender()->IsBusy());
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
  to.open->sender()->Ask(*link, now);
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
    WorkerConnection& connection = *to.open;
    const auto request = [&](const Push& push) {
      return connection.RequestPlace(push, push.data.size());
    };
    const bool open = connection.SendWords(to.dropped) && to.pushes.Activate(request);
    if (!open || !to.pushes.has_begun()) return;  // on_writable, or a place, resumes
    if (turn >= kTurnBytes) return SchedulePump(key);
    auto next = to.pushes.Take();
    Pushing& pushing = next->item;
    const size_t before = pushing.shard.offset();
    // Otherwise on_writable or on_closed resumes.
    if (!SendPiece(options_.session, *connection.sender(), pushing))
      return to.pushes.Undo(*std::move(next));
    turn += pushing.shard.offset() - before + 64;
    if (!pushing.shard.done()) {
      to.pushes.Again(*std::move(next));
    } else {
      Release(pushing.push);  // may call the client, which posts or sends
    }
  }
}

}  // namespace gangway::client
