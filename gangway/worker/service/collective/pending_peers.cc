// Implementation of pending_peers.h.
#include "gangway/worker/service/collective/pending_peers.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::worker {
namespace {

// A launch that waits looks as often whether it is still wanted.
constexpr std::chrono::milliseconds kLookMax{50};

}  // namespace

PendingPeers::PendingPeers(
    std::span<const WorkerDevice> devices,
    absl::FunctionRef<std::shared_ptr<PendingPeer>(uint32_t worker)> pending_of) {
  std::map<uint32_t, uint32_t> numbers;  // in workers_, by index
  for (const auto& [worker, device] : devices) {
    const auto [found, is_new] = numbers.emplace(worker, static_cast<uint32_t>(workers_.size()));
    const uint32_t number = found->second;
    if (is_new) workers_.push_back({pending_of(worker)});
    workers_[number].last_device = std::max(workers_[number].last_device, device);
    positions_.push_back({number, device});
  }
}

absl::StatusOr<std::shared_ptr<const collective::PeerDevices>> PendingPeers::Wait(
    Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted) {
  {
    MutexLock lock(mutex_);
    if (known_ != nullptr) return known_;
  }
  std::vector<std::shared_ptr<const collective::Peer>> peers;
  for (const auto& [pending, last_device] : workers_) {
    if (pending == nullptr) {
      GANGWAY_RETURN_IF_ERROR(unwanted());
      peers.emplace_back();
      continue;
    }
    absl::StatusOr<std::shared_ptr<const collective::Peer>> peer;
    do {
      GANGWAY_RETURN_IF_ERROR(unwanted());
      peer = pending->Wait(std::min(deadline, Clock::now() + kLookMax));
    } while (absl::IsDeadlineExceeded(peer.status()) && Clock::now() < deadline);
    GANGWAY_RETURN_IF_ERROR(peer);
    if (last_device >= (*peer)->arena().devices())
      return absl::InternalError(absl::StrCat((*peer)->name(), " has no device ", last_device));
    peers.push_back(*std::move(peer));
  }
  MutexLock lock(mutex_);
  if (known_ != nullptr) return known_;  // it is as long as the program: one device makes it
  std::vector<collective::PeerDevice> devices;
  devices.reserve(positions_.size());
  for (const auto& [number, device] : positions_) devices.push_back({peers[number], device});
  return known_ = std::make_shared<const collective::PeerDevices>(std::move(devices));
}

}  // namespace gangway::worker
