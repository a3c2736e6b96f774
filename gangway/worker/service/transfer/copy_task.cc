// Implementation of copy_task.h.
#include "gangway/worker/service/transfer/copy_task.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {

// The shards of one position, as far as they exist. Thread-safe.
class CopyTask::Leaving {
 public:
  explicit Leaving(size_t arrays) : buffers_(arrays), left_(arrays) {}

  // All of them, once this one was the last.
  std::optional<TransferPlane::Buffers> Add(size_t array, std::shared_ptr<device::Buffer> buffer) {
    MutexLock lock(mutex_);
    buffers_[array] = std::move(buffer);
    if (--left_ != 0) return std::nullopt;
    return std::move(buffers_);
  }

 private:
  Mutex mutex_;
  TransferPlane::Buffers buffers_ GANGWAY_GUARDED_BY(mutex_);
  size_t left_ GANGWAY_GUARDED_BY(mutex_);
};

CopyTask::CopyTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                   device::Backend* backend, TransferPlane* plane, Parts parts)
    : NodeTask(std::move(environment), ordinal, wire::LabelOf("copy"), CountParts(parts)),
      backend_(backend),
      plane_(plane),
      parts_(std::move(parts)),
      token_(TransferToken::Split(parts_.token)) {
  if (parts_.receives.empty()) return;
  gather_left_ = parts_.moves.size() + parts_.receives.size();
  gathered_.resize(gather_left_);
}

// Each shard of a result ends by itself, and each position that leaves.
size_t CopyTask::CountParts(const Parts& parts) {
  size_t count = parts.sends.size();
  for (const Move& move : parts.moves) count += move.to.size();
  for (const Receive& receive : parts.receives) count += receive.to.size();
  return count;
}

const CopyTask::Slots& CopyTask::Result(size_t index) const {
  const size_t moves = parts_.moves.size();
  return index < moves ? parts_.moves[index].to : parts_.receives[index - moves].to;
}

void CopyTask::Enqueue() {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  for (size_t i = 0; i < parts_.moves.size(); ++i) {
    const Slots& from = parts_.moves[i].from;
    environment().devices[from.front()->name().device]->Post(
        {.run = [self, i](const absl::Status&) { self->RunMove(i); },
         .ready =
             [self, &from, settled = size_t{0}]() mutable {
               while (settled < from.size() && from[settled]->settled()) ++settled;
               return settled == from.size();
             }});
  }
  for (const Send& send : parts_.sends) OfferShards(send);
  for (size_t i = 0; i < parts_.receives.size(); ++i) AskFor(parts_.moves.size() + i);
}

void CopyTask::RunMove(size_t index) {
  const Move& move = parts_.moves[index];
  absl::StatusOr<std::vector<store::Content>> copied = CopyOrShareAll(move);
  if (!copied.ok()) Note(copied.status(), move.from.front()->name().device);
  if (!parts_.receives.empty()) {
    if (!copied.ok()) return Gather(index, copied.status());
    return Gather(index, Gathered{.contents = *std::move(copied), .received = {}});
  }
  if (!copied.ok()) {
    GiveUp();
    return EndParts(move.to.size());
  }
  for (size_t i = 0; i < move.to.size(); ++i) Deliver(*move.to[i], std::move((*copied)[i]));
}

absl::StatusOr<std::vector<store::Content>> CopyTask::CopyOrShareAll(const Move& move) {
  std::vector<store::Content> contents;
  contents.reserve(move.to.size());
  for (size_t i = 0; i < move.to.size(); ++i) {
    GANGWAY_ASSIGN_OR_RETURN(store::Content content, CopyOrShare(*move.to[i], *move.from[i]));
    contents.push_back(std::move(content));
  }
  return contents;
}

absl::StatusOr<store::Content> CopyTask::CopyOrShare(const store::Slot& to, store::Slot& from) {
  absl::StatusOr<store::Content> source = from.Wait(Deadline());
  GANGWAY_RETURN_IF_ERROR(source);
  int to_device = to.name().device;
  bool stays = to_device == from.name().device &&
               (parts_.memory_kind.empty() || parts_.memory_kind == source->buffer->memory_kind());
  if (stays) return from.Share(Deadline());
  GANGWAY_ASSIGN_OR_RETURN(auto copy, source->buffer->CopyToDevice(to_device, parts_.memory_kind));
  return store::Content{std::move(copy), store::Sharing::kOwned};
}

// No device thread waits here. The buffers are shared from now on, so that a later donation cannot
// take them before they are read.
void CopyTask::OfferShards(const Send& send) {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  const TransferKey key = Key(send.position);
  const int device = send.from.front()->name().device;
  plane_->Offer({.key = key,
                 .token = token_,
                 .session = parts_.session,
                 .receiver = absl::StrCat("the worker of device ", send.to_device),
                 .taken = [self, device](const absl::Status& status) {
                   if (!status.ok()) self->FailSend(device, status);
                   self->EndPart();
                 }});
  auto leaving = std::make_shared<Leaving>(send.from.size());
  for (size_t i = 0; i < send.from.size(); ++i) OfferWhenReady(key, leaving, i, *send.from[i]);
}

void CopyTask::OfferWhenReady(const TransferKey& key, const std::shared_ptr<Leaving>& leaving,
                              size_t array, store::Slot& from) {
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  const int device = from.name().device;
  from.ShareWhenSettled([self, key, device, leaving,
                         array](absl::StatusOr<store::Content> content) {
    if (!content.ok()) return self->FailSource(key, device, content.status());
    std::shared_ptr<device::Buffer> buffer = content->buffer;
    buffer->OnReady(self->Owed([self, key, device, leaving, array, buffer](absl::Status status) {
      if (!status.ok()) return self->FailSource(key, device, status);
      if (auto all = leaving->Add(array, buffer)) self->plane_->Settle(key, *std::move(all));
    }));
  });
}

void CopyTask::FailSource(const TransferKey& key, int device, const absl::Status& why) {
  FailSend(device, why);
  plane_->Settle(key, why);
}

// What this worker receives does not come either. It does not wait for the others to say so: each of two workers that
// exchange shards, and cannot send them, would wait for the other.
void CopyTask::FailSend(int device, const absl::Status& why) {
  Note(why, device);
  if (!parts_.receives.empty()) GiveUp();
}

void CopyTask::AskFor(size_t index) {
  const size_t number = index - parts_.moves.size();
  const Receive& receive = parts_.receives[number];
  const WorkerRef from = number < peers_.size() ? peers_[number] : nullptr;
  absl::StatusOr<std::vector<size_t>> sizes = Sizes();
  if (from == nullptr) {
    sizes = absl::DataLossError(absl::StrCat("The worker of device ", receive.from_device,
                                             ", which held the source, is gone."));
  }
  if (!sizes.ok()) {
    Note(sizes.status(), receive.to.front()->name().device);
    return Gather(index, sizes.status());
  }
  auto self = std::static_pointer_cast<CopyTask>(shared_from_this());
  plane_->Ask({.key = Key(receive.position),
               .token = token_,
               .session = parts_.session,
               .from = *from,
               .sizes = *std::move(sizes),
               .arrived = [self, index](absl::StatusOr<std::vector<ShardBytes>> shards) {
                 if (shards.ok())
                   return self->Gather(index,
                                       Gathered{.contents = {}, .received = *std::move(shards)});
                 self->Note(shards.status(), self->Result(index).front()->name().device);
                 self->Gather(index, shards.status());
               }});
  // Of another part, which has perhaps cancelled this request before it was made.
  if (const auto why = failure()) plane_->Cancel(Key(receive.position), wire::ToStatus(*why));
}

absl::StatusOr<std::vector<size_t>> CopyTask::Sizes() const {
  std::vector<size_t> sizes;
  sizes.reserve(parts_.specs.size());
  for (const device::ArraySpec& spec : parts_.specs) {
    const std::optional<size_t> size = device::HostBytes(spec);
    if (!size) return absl::InternalError("The array's element type has no size in host memory.");
    sizes.push_back(*size);
  }
  return sizes;
}

// The last position to arrive fills all shards, or ends them all.
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
  std::vector<std::vector<store::Content>> contents;
  for (size_t i = 0; i < gathered.size() && !failure(); ++i)
    contents.push_back(MakeContents(Result(i), gathered[i]));
  const bool failed = failure().has_value();
  if (failed) GiveUp();
  for (size_t i = 0; i < gathered.size(); ++i) {
    const Slots& slots = Result(i);
    if (failed) {
      EndParts(slots.size());
      continue;
    }
    for (size_t k = 0; k < slots.size(); ++k) Deliver(*slots[k], std::move(contents[i][k]));
  }
}

std::vector<store::Content> CopyTask::MakeContents(const Slots& slots, Gathered& gathered) {
  if (gathered.received.empty()) return std::move(gathered.contents);
  std::vector<store::Content> contents;
  contents.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    absl::StatusOr<store::Content> content =
        MakeContent(*slots[i], parts_.specs[i], gathered.received[i]);
    if (!content.ok()) {
      Note(content.status(), slots[i]->name().device);
      return {};
    }
    contents.push_back(*std::move(content));
  }
  gathered.received.clear();
  return contents;
}

absl::StatusOr<store::Content> CopyTask::MakeContent(const store::Slot& slot,
                                                     const device::ArraySpec& spec,
                                                     const ShardBytes& received) {
  auto semantics = backend_->capabilities().host_zero_copy
                       ? device::HostSemantics::kZeroCopy
                       : device::HostSemantics::kUntilTransferDone;
  // The callback owns the bytes: they live until the runtime releases them.
  auto done = CountOwed(environment().callbacks,
                        [charge = received.charge, owner = received.owner](absl::Status) {});
  GANGWAY_ASSIGN_OR_RETURN(auto buffer,
                           backend_->BufferFromHost(slot.name().device, parts_.memory_kind, spec,
                                                    received.bytes, semantics, std::move(done)));
  return store::Content{.buffer = std::move(buffer), .borrowed = received.shared()};
}

// Poisons all shards of the results and cancels the requests to other workers. One request that is made later finds the
// failure. What others request here does not come either: each of two workers that exchange shards, and cannot receive
// them, would wait for the other's receipt.
void CopyTask::GiveUp() {
  if (gave_up_.exchange(true)) return;
  const wire::Failure why = *failure();
  for (const Move& move : parts_.moves) FailAll(move.to, why);
  for (const Receive& receive : parts_.receives) {
    FailAll(receive.to, why);
    plane_->Cancel(Key(receive.position), wire::ToStatus(why));
  }
  CancelSends(why);
}

void CopyTask::CancelSends(const wire::Failure& why) {
  for (const Send& send : parts_.sends) plane_->Cancel(Key(send.position), wire::ToStatus(why));
}

void CopyTask::FailAll(const Slots& slots, const wire::Failure& why) const {
  for (const auto& slot : slots) slot->Fail(why);
  environment().devices[slots.front()->name().device]->Recheck();
}

void CopyTask::EndParts(size_t count) {
  for (size_t i = 0; i < count; ++i) EndPart();
}

void CopyTask::Cancel(const wire::Failure& why) {
  Note(wire::ToStatus(why),
       (parts_.sends.empty() ? Result(0) : parts_.sends[0].from).front()->name().device);
  if (!parts_.receives.empty()) GiveUp();
  CancelSends(why);
}

}  // namespace gangway::worker
