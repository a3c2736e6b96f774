// Implementation of push_queue.h.
#include "gangway/client/push_queue.h"

#include <algorithm>
#include <span>
#include <utility>

namespace gangway::client {

using transport::ShardSize;

transport::OutgoingShard BytesOf(const Push& push) {
  return transport::OutgoingShard(std::as_bytes(std::span(push.data)));
}

void PushQueue::Add(Pushing pushing) {
  if (pushing.push.data.size() < kPlacedBytesMin) return Begin(std::move(pushing));
  waiting_.push_back(std::move(pushing));
}

void PushQueue::Begin(Pushing pushing) {
  const bool small = pushing.push.data.size() < kPlacedBytesMin;
  active_.Push(SessionId(), small ? ShardSize::kSmall : ShardSize::kLarge, std::move(pushing));
}

bool PushQueue::Activate(absl::FunctionRef<PlaceRequest(const Push&)> request) {
  while (active_.size(ShardSize::kLarge) + placing_.size() < kInterleaved && !waiting_.empty()) {
    Pushing& next = waiting_.front();
    const bool placeable =
        !next.unplaceable && next.shard.target() == nullptr && !next.shard.begun();
    const PlaceRequest requested = placeable ? request(next.push) : PlaceRequest::kNoSharedMemory;
    if (requested == PlaceRequest::kFull) return false;
    if (requested == PlaceRequest::kSent) {
      placing_.push_back(std::move(next));
    } else {
      Begin(std::move(next));
    }
    waiting_.pop_front();
  }
  return true;
}

bool PushQueue::OnPlace(PushName name,
                        absl::FunctionRef<std::shared_ptr<std::byte>(size_t size)> place) {
  auto pushing = std::find_if(placing_.begin(), placing_.end(), [&](const Pushing& each) {
    return PushName(each.push.upload, each.push.shard) == name;
  });
  if (pushing == placing_.end()) return false;
  pushing->shard.WriteInto(place(pushing->push.data.size()));
  pushing->unplaceable = pushing->shard.target() == nullptr;
  Begin(std::move(*pushing));
  placing_.erase(pushing);
  return true;
}

std::set<UploadId> PushQueue::TakeIf(absl::FunctionRef<bool(const Pushing&)> of) {
  std::set<UploadId> taken;
  for (Pushing& pushing : active_.TakeIf(of)) {
    taken.insert(pushing.push.upload);
    Release(pushing.push);
  }
  for (auto* queue : {&placing_, &waiting_}) {
    for (Pushing& pushing : std::exchange(*queue, {})) {
      if (of(pushing)) {
        taken.insert(pushing.push.upload);
        Release(pushing.push);
      } else {
        queue->push_back(std::move(pushing));
      }
    }
  }
  return taken;
}

std::set<UploadId> PushQueue::TakeAll() {
  return TakeIf([](const Pushing&) { return true; });
}

void PushQueue::LosePlaces() {
  for (Pushing& pushing : std::exchange(placing_, {})) Begin(std::move(pushing));
  auto must_be_sent = [](Pushing& pushing) {
    pushing.shard.WriteInto(nullptr);
    pushing.unplaceable = true;
  };
  active_.ForEach(must_be_sent);
  std::for_each(waiting_.begin(), waiting_.end(), must_be_sent);
}

}  // namespace gangway::client
