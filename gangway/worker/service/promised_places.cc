// Implementation of promised_places.h.
#include "gangway/worker/service/promised_places.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::worker {
namespace {

// A launch that waits looks as often whether it is still wanted.
constexpr std::chrono::milliseconds kLookMax{50};

}  // namespace

absl::StatusOr<std::shared_ptr<const collective::Places>> PromisedPlaces::Wait(
    Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted) {
  {
    MutexLock lock(mutex_);
    if (known_ != nullptr) return known_;
  }
  std::vector<std::shared_ptr<const collective::Peer>> peers;
  for (const std::shared_ptr<PeerPromise>& promise : peers_) {
    absl::StatusOr<std::shared_ptr<const collective::Peer>> peer;
    do {
      GANGWAY_RETURN_IF_ERROR(unwanted());
      peer = promise->Wait(std::min(deadline, Clock::now() + kLookMax));
    } while (absl::IsDeadlineExceeded(peer.status()) && Clock::now() < deadline);
    GANGWAY_RETURN_IF_ERROR(peer);
    peers.push_back(*std::move(peer));
  }
  MutexLock lock(mutex_);
  if (known_ != nullptr) return known_;  // a device's list is as long as the cluster: one makes it
  auto places = std::make_shared<collective::Places>();
  places->reserve(places_.size());
  for (const auto& [number, device] : places_) {
    const std::shared_ptr<const collective::Peer>& peer = peers[number];
    if (device >= peer->arena().devices())
      return absl::InternalError(absl::StrCat(peer->name(), " has no device ", device));
    places->push_back({peer, device});
  }
  return known_ = std::move(places);
}

}  // namespace gangway::worker
