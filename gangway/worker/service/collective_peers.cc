// Implementation of collective_peers.h.
#include "gangway/worker/service/collective_peers.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::worker {
namespace {

constexpr std::chrono::milliseconds kSendAgain{20};
constexpr std::chrono::seconds kSendMax{10};
// Of workers that knew of this one before it knew of them.
constexpr size_t kEarlyMax = collective::kWorkersMax;

std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

void PeerPromise::Set(absl::StatusOr<std::shared_ptr<collective::Peer>> peer) {
  MutexLock lock(mutex_);
  if (is_set_) return;
  is_set_ = true;
  peer_ = std::move(peer);
  changed_.NotifyAll();
}

void PeerPromise::SetGone() {
  Set(absl::UnavailableError("the worker of a member is gone"));
  MutexLock lock(mutex_);
  if (peer_.ok()) (*peer_)->is_gone.store(true, std::memory_order_relaxed);
}

absl::StatusOr<std::shared_ptr<const collective::Peer>> PeerPromise::Wait(
    Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (!changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return is_set_; }))
    return absl::DeadlineExceededError("the memory of a member's worker has not come");
  GANGWAY_RETURN_IF_ERROR(peer_);
  return std::shared_ptr<const collective::Peer>(*peer_);
}

absl::StatusOr<std::shared_ptr<const collective::Places>> PromisedPlaces::Wait(
    Clock::time_point deadline) {
  MutexLock lock(mutex_);
  if (known_ != nullptr) return known_;
  auto places = std::make_shared<collective::Places>();
  for (const Place& place : places_) {
    GANGWAY_ASSIGN_OR_RETURN(auto peer, place.peer->Wait(deadline));
    if (place.device >= peer->arena->devices())
      return absl::InternalError(absl::StrCat(peer->name, " has no device ", place.device));
    places->push_back({std::move(peer), place.device});
  }
  known_ = std::move(places);
  return known_;
}

class CollectivePeers::Arrival final : public Poller::Watched {
 public:
  Arrival(CollectivePeers* peers, std::shared_ptr<const bool> alive)
      : peers_(peers), alive_(std::move(alive)) {}
  void OnReady(uint32_t /*epoll_events*/) override {
    if (*alive_) peers_->Receive();
  }

 private:
  CollectivePeers* const peers_;
  const std::shared_ptr<const bool> alive_;
};

CollectivePeers::CollectivePeers(Options options) : options_(std::move(options)) {
  if (!options_.shared_memory) return;
  auto mailbox = transport::DescriptorMailbox::Open();
  if (!mailbox.ok()) {
    spdlog::warn("No programs with collectives over several workers: {}",
                 std::string(mailbox.status().message()));
    return;
  }
  mailbox_ = *std::move(mailbox);
  socket_.set_name(mailbox_->name());
  socket_.set_secret(mailbox_->secret());
}

CollectivePeers::~CollectivePeers() {
  *alive_ = false;
  if (poller_ != nullptr && watch_ != 0) poller_->Forget(watch_, mailbox_->fd());
}

absl::Status CollectivePeers::Begin() {
  if (!absl::IsUnknown(begun_)) return begun_;
  begun_ = absl::OkStatus();
  const auto devices = static_cast<uint32_t>(options_.identity.device_count);
  auto arena = collective::Arena::Create(devices);
  if (!arena.ok()) return begun_ = arena.status();
  arena_ = *std::move(arena);
  {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < devices; ++i)
      devices_.push_back(std::make_shared<collective::LocalDevice>(arena_, options_.index, i));
  }
  if (mailbox_ == nullptr) return begun_;
  auto poller = options_.loop->poller();
  if (!poller.ok()) return begun_ = poller.status();
  poller_ = *std::move(poller);
  watch_ = poller_->NextId();
  return begun_ = poller_->Watch(watch_, mailbox_->fd(), EPOLLIN,
                                 std::make_shared<Arrival>(this, alive_));
}

void CollectivePeers::Know(const wire::Worker& worker) {
  Member& member = members_[worker.index()];
  if (member.promise != nullptr && member.worker.incarnation() == worker.incarnation()) return;
  if (member.promise != nullptr) member.promise->SetGone();
  ++version_;
  member.worker = worker;
  member.promise = std::make_shared<PeerPromise>();
  for (int i = 0; i < worker.devices_size(); ++i)
    places_[DeviceId(worker.devices(i))] = {worker.index(), static_cast<uint32_t>(i)};
  if (const absl::Status begun = Begin(); !begun.ok()) return member.promise->Set(begun);
  if (worker.index() >= collective::kWorkersMax) {
    return member.promise->Set(absl::UnimplementedError(absl::StrCat(
        "collectives of an island with more than ", collective::kWorkersMax, " workers")));
  }
  if (worker.incarnation() == options_.identity.incarnation.number()) {
    auto self = std::make_shared<collective::Peer>();
    self->name = options_.identity.name;
    self->index = worker.index();
    self->arena = arena_;
    return member.promise->Set(std::move(self));
  }
  if (worker.incarnation() == 0) return member.promise->SetGone();
  if (worker.host() != options_.host || mailbox_ == nullptr ||
      worker.collectives().name().empty()) {
    return member.promise->Set(absl::UnimplementedError(absl::StrCat(
        options_.identity.name, " and ", NameOf(worker),
        worker.host() != options_.host ? " are on different hosts" : " have no shared memory",
        ": collectives between them are not implemented. Use a mesh over workers of one host with "
        "shared memory.")));
  }
  SendArena(worker, Clock::now() + kSendMax);
  if (auto early = early_.extract(worker.incarnation()); !early.empty())
    Take(member, std::move(early.mapped()));
}

void CollectivePeers::SendArena(const wire::Worker& worker, Clock::time_point deadline) {
  const absl::Status sent =
      mailbox_->Send(worker.collectives().name(), worker.collectives().secret(),
                     options_.identity.incarnation.number(), arena_->descriptor());
  if (sent.ok()) return;
  if (!absl::IsResourceExhausted(sent) || Clock::now() >= deadline) {
    // The scheduler says when it is gone; until then its members wait for ours, and so do ours for its.
    return spdlog::warn("No collectives with {}: {}", NameOf(worker), std::string(sent.message()));
  }
  options_.loop->PostAt(Clock::now() + kSendAgain, [this, alive = alive_, worker, deadline] {
    if (*alive) SendArena(worker, deadline);
  });
}

void CollectivePeers::Receive() {
  while (auto mail = mailbox_->Receive()) {
    auto sender = std::ranges::find_if(members_, [&mail](const auto& each) {
      return each.second.worker.incarnation() == mail->sender;
    });
    if (sender != members_.end()) {
      Take(sender->second, std::move(mail->descriptor));
    } else if (early_.size() < kEarlyMax) {
      early_[mail->sender] = std::move(mail->descriptor);
    }
  }
}

void CollectivePeers::Take(Member& member, FileDescriptor descriptor) {
  auto arena = collective::Arena::Map(std::move(descriptor),
                                      static_cast<uint32_t>(member.worker.devices_size()));
  if (!arena.ok()) return member.promise->Set(arena.status());
  auto peer = std::make_shared<collective::Peer>();
  peer->name = NameOf(member.worker);
  peer->index = member.worker.index();
  peer->arena = *std::move(arena);
  member.promise->Set(std::move(peer));
}

std::shared_ptr<PromisedPlaces> CollectivePeers::PlacesOf(std::span<const DeviceId> devices) {
  std::vector<PromisedPlaces::Place> places;
  for (DeviceId device : devices) {
    auto found = places_.find(device);
    if (found != places_.end()) {
      places.push_back({members_.at(found->second.first).promise, found->second.second});
      continue;
    }
    auto unknown = std::make_shared<PeerPromise>();
    unknown->Set(
        absl::InternalError(absl::StrCat("the worker of device ", device, " was not named")));
    places.push_back({std::move(unknown), 0});
  }
  return std::make_shared<PromisedPlaces>(std::move(places));
}

std::shared_ptr<collective::LocalDevice> CollectivePeers::local(int device) const {
  MutexLock lock(mutex_);
  return static_cast<size_t>(device) < devices_.size() ? devices_[device] : nullptr;
}

std::map<int, collective::Waiting> CollectivePeers::Waiting() const {
  std::map<int, collective::Waiting> all;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < devices_.size(); ++i)
    if (auto waiting = devices_[i]->waiting()) all[static_cast<int>(i)] = *std::move(waiting);
  return all;
}

}  // namespace gangway::worker
