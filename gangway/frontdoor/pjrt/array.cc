// Implementation of array.h.
#include "gangway/frontdoor/pjrt/array.h"

#include "gangway/frontdoor/pjrt/event.h"

namespace gangway::pjrt {

std::shared_ptr<Outcome> Array::Ready() {
  const uint64_t losses = client_->losses();
  if (losses == 0 && produced_ != nullptr) return produced_;
  std::shared_ptr<Outcome> asked;
  {
    MutexLock lock(mutex_);
    if (asked_ != nullptr && losses_asked_ == losses) return asked_;
    asked = asked_ = std::make_shared<Outcome>(client_);
    losses_asked_ = losses;
  }
  client_->Await(std::span<const ArrayHandle>(&handle_, 1),
                 [asked](const absl::Status& status) { asked->Set(status); });
  return asked;
}

void AwaitRoom(Client* client) {
  if (client->pending() < client->pending_max()) [[likely]]
    return;
  if (IsInCallback()) return;  // it would wait for itself
  auto room = std::make_shared<Outcome>(client);
  client->WhenRoom([room] { room->Set(absl::OkStatus()); });
  room->Wait().IgnoreError();
}

}  // namespace gangway::pjrt
