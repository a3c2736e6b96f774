// Implementation of array.h.
#include "gangway/frontdoor/pjrt/array.h"

#include <utility>

namespace gangway::pjrt {

std::shared_ptr<Outcome> Array::Ready() {
  std::shared_ptr<Outcome> ready;
  {
    MutexLock lock(mutex_);
    if (ready_) return ready_;
    ready = ready_ = std::make_shared<Outcome>();
  }
  client_->Await(std::span<const ArrayHandle>(&handle_, 1),
                 [ready](const absl::Status& status) { ready->Set(status); });
  return ready;
}

void AwaitRoom(Client* client) {
  if (client->pending() < client->pending_max()) [[likely]]
    return;
  auto room = std::make_shared<Outcome>();
  client->WhenRoom([room] { room->Set(absl::OkStatus()); });
  room->Wait().IgnoreError();
}

std::shared_ptr<Array> Gather(Client* client, std::vector<ShardOf> shards) {
  const auto count = static_cast<uint32_t>(shards.size());
  auto view = std::make_shared<Array>(client, client->NewArrayHandle(), count);
  client->Regroup({{.array = view->handle(), .shards = std::move(shards)}});
  return view;
}

}  // namespace gangway::pjrt
