// Implementation of copy_task.h.
#include "gangway/worker/service/transfer/copy_task.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {

CopyTask::CopyTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                   device::Backend* backend, TransferPlane* plane, Parts parts)
    : NodeTask(std::move(environment), ordinal, wire::LabelOf("copy"),
               parts.moves.size() + parts.sends.size() + parts.receives.size()),
      backend_(backend),
      plane_(plane),
      parts_(std::move(parts)),
      token_(TransferToken::Split(parts_.token)) {
  if (parts_.receives.empty()) return;
  gather_left_ = parts_.moves.size() + parts_.receives.size();
  gathered_.resize(gather_left_);
}

const std::shared_ptr<store::Slot>& CopyTask::Result(size_t index) const {
  const size_t moves = parts_.moves.size();
  return index < moves ? parts_.moves[index].to : parts_.receives[index - moves].to;
}

void CopyTask::Enqueue() {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  for (size_t i = 0; i < parts_.moves.size(); ++i) {
    const store::Slot& from = *parts_.moves[i].from;
    environment().devices[from.name().device]->Post(
        {.run = [self, i](const absl::Status&) { self->RunMove(i); },
         .ready = [self, &from] { return from.settled(); }});
  }
  for (const Send& send : parts_.sends) OfferShard(send);
  for (size_t i = 0; i < parts_.receives.size(); ++i) AskFor(parts_.moves.size() + i);
}

void CopyTask::RunMove(size_t index) {
  const Move& move = parts_.moves[index];
  absl::StatusOr<store::Content> copied = CopyOrShare(move);
  if (!copied.ok()) Note(copied.status(), move.from->name().device);
  if (!parts_.receives.empty()) {
    if (!copied.ok()) return Gather(index, copied.status());
    return Gather(index, Gathered{.content = *std::move(copied)});
  }
  if (copied.ok()) return Deliver(*move.to, *std::move(copied));
  for (const Move& each : parts_.moves) FailSlot(environment(), *each.to, *failure());
  EndPart();
}

absl::StatusOr<store::Content> CopyTask::CopyOrShare(const Move& move) {
  absl::StatusOr<store::Content> source = move.from->Wait(Deadline());
  GANGWAY_RETURN_IF_ERROR(source);
  int to_device = move.to->name().device;
  bool stays = to_device == move.from->name().device &&
               (parts_.memory_kind.empty() || parts_.memory_kind == source->buffer->memory_kind());
  if (stays) return move.from->Share(Deadline());
  GANGWAY_ASSIGN_OR_RETURN(auto copy, source->buffer->CopyToDevice(to_device, parts_.memory_kind));
  return store::Content{std::move(copy), store::Sharing::kOwned};
}

// No device thread waits here. The buffer is shared from now on, so that a later donation cannot
// take it before it is read.
void CopyTask::OfferShard(const Send& send) {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  const TransferKey key = Key(send.shard);
  const int device = send.from->name().device;
  plane_->Offer({.key = key,
                 .token = token_,
                 .session = parts_.session,
                 .receiver = absl::StrCat("the worker of device ", send.to_device),
                 .taken = [self, device](const absl::Status& status) {
                   if (!status.ok()) self->Note(status, device);
                   self->EndPart();
                 }});
  send.from->ShareWhenSettled([self, key, device](absl::StatusOr<store::Content> content) {
    if (!content.ok()) return self->FailSource(key, device, content.status());
    std::shared_ptr<device::Buffer> buffer = content->buffer;
    buffer->OnReady(self->Owed([self, key, device, buffer](absl::Status status) {
      if (!status.ok()) return self->FailSource(key, device, status);
      self->plane_->Settle(key, buffer);
    }));
  });
}

// What this worker receives does not come either. It does not wait for the others to say so: each of two workers that
// exchange shards of a failed source would wait for the other.
void CopyTask::FailSource(const TransferKey& key, int device, const absl::Status& why) {
  Note(why, device);
  if (!parts_.receives.empty()) GiveUp();
  plane_->Settle(key, why);
}

void CopyTask::AskFor(size_t index) {
  const size_t number = index - parts_.moves.size();
  const Receive& receive = parts_.receives[number];
  const store::SlotName& name = receive.to->name();
  const WorkerRef from = number < peers_.size() ? peers_[number] : nullptr;
  std::optional<size_t> size = device::HostBytes(parts_.spec);
  absl::Status status;
  if (from == nullptr) {
    status = absl::DataLossError(absl::StrCat("The worker of device ", receive.from_device,
                                              ", which held the source, is gone."));
  } else if (!size) {
    status = absl::InternalError("The array's element type has no size in host memory.");
  }
  if (!status.ok()) {
    Note(status, name.device);
    return Gather(index, status);
  }
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  plane_->Ask({.key = Key(name.shard),
               .token = token_,
               .session = parts_.session,
               .from = *from,
               .size = *size,
               .arrived = [self, index](absl::StatusOr<ShardBytes> shard) {
                 if (shard.ok())
                   return self->Gather(index, Gathered{.received = *std::move(shard)});
                 self->Note(shard.status(), self->Result(index)->name().device);
                 self->Gather(index, shard.status());
               }});
  // Of another part, which has perhaps cancelled this request before it was made.
  if (const auto why = failure()) plane_->Cancel(Key(name.shard), wire::ToStatus(*why));
}

// The last shard to arrive fills all shards, or ends them all.
void CopyTask::Gather(size_t index, absl::StatusOr<Gathered> gathered) {
  if (!gathered.ok()) GiveUp();
  bool last = false;
  {
    MutexLock lock(gather_mutex_);
    if (gathered.ok()) gathered_[index] = *std::move(gathered);
    last = --gather_left_ == 0;
  }
  if (last) Fill();
}

void CopyTask::Fill() {
  std::vector<Gathered> gathered;
  {
    MutexLock lock(gather_mutex_);
    gathered.swap(gathered_);
  }
  std::vector<store::Content> contents;
  for (size_t i = 0; i < gathered.size() && !failure(); ++i) {
    absl::StatusOr<store::Content> content = MakeContent(*Result(i), gathered[i]);
    if (content.ok()) {
      contents.push_back(*std::move(content));
    } else {
      Note(content.status(), Result(i)->name().device);
    }
  }
  const bool failed = failure().has_value();
  if (failed) GiveUp();
  for (size_t i = 0; i < gathered.size(); ++i) {
    if (failed) {
      EndPart();
    } else {
      Deliver(*Result(i), std::move(contents[i]));
    }
  }
}

absl::StatusOr<store::Content> CopyTask::MakeContent(const store::Slot& slot, Gathered& gathered) {
  if (gathered.received.owner == nullptr) return std::move(gathered.content);
  auto semantics = backend_->capabilities().host_zero_copy
                       ? device::HostSemantics::kZeroCopy
                       : device::HostSemantics::kUntilTransferDone;
  // The callback owns the bytes: they live until the runtime releases them.
  auto done = CountOwed(
      environment().callbacks,
      [charge = gathered.received.charge, owner = gathered.received.owner](absl::Status) {});
  GANGWAY_ASSIGN_OR_RETURN(
      auto buffer, backend_->BufferFromHost(slot.name().device, parts_.memory_kind, parts_.spec,
                                            gathered.received.bytes, semantics, std::move(done)));
  return store::Content{.buffer = std::move(buffer), .borrowed = gathered.received.shared()};
}

// Poisons all shards of the result and cancels the requests to other workers.
void CopyTask::GiveUp() {
  const wire::Failure why = *failure();
  for (const Move& move : parts_.moves) FailSlot(environment(), *move.to, why);
  for (const Receive& receive : parts_.receives) {
    FailSlot(environment(), *receive.to, why);
    plane_->Cancel(Key(receive.to->name().shard), wire::ToStatus(why));
  }
}

void CopyTask::Cancel(const wire::Failure& why) {
  Note(wire::ToStatus(why),
       parts_.sends.empty() ? Result(0)->name().device : parts_.sends[0].from->name().device);
  if (!parts_.receives.empty()) GiveUp();
  for (const Send& send : parts_.sends) plane_->Cancel(Key(send.shard), wire::ToStatus(why));
}

}  // namespace gangway::worker
