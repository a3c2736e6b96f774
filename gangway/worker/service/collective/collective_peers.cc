// Implementation of collective_peers.h.
#include "gangway/worker/service/collective/collective_peers.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::worker {
namespace {

// Until a full mailbox is tried again; doubled each time.
constexpr std::chrono::milliseconds kSendAgain{20};
constexpr std::chrono::milliseconds kSendAgainMax{1000};
// Of workers that knew of this one before it knew of them.
constexpr size_t kEarlyMax = collective::kWorkersMax;

std::string NameOf(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

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

CollectivePeers::CollectivePeers(Options options)
    : options_(std::move(options)),
      streams_({.identity = options_.identity,
                .island = options_.island,
                .index = options_.index,
                .loop = options_.loop,
                .receiver = options_.receiver,
                .transport = options_.transport,
                .couriers = couriers_,
                .on_refused = options_.on_refused,
                .on_broken = [this] { ++version_; }}) {
  if (options_.arenas != nullptr)
    (void)Begin();  // so that the others find its arena; if it fails, a load tells
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

absl::StatusOr<std::shared_ptr<collective::Arena>> CollectivePeers::MakeArena() const {
  const auto devices = static_cast<uint32_t>(options_.identity.device_count);
  if (mailbox_ != nullptr) return collective::Arena::Create(devices);
  // Memory that no other process maps is used page by page.
  GANGWAY_ASSIGN_OR_RETURN(auto arena, collective::Arena::Anonymous(devices));
  if (options_.arenas != nullptr)
    options_.arenas->Add(options_.identity.incarnation.number(), arena);
  return arena;
}

absl::Status CollectivePeers::Begin() {
  if (arena_ != nullptr) return absl::OkStatus();
  const auto devices = static_cast<uint32_t>(options_.identity.device_count);
  GANGWAY_ASSIGN_OR_RETURN(std::shared_ptr<collective::Arena> arena, MakeArena());
  if (mailbox_ != nullptr) {
    GANGWAY_ASSIGN_OR_RETURN(poller_, options_.loop->poller());
    watch_ = poller_->NextId();
    GANGWAY_RETURN_IF_ERROR(
        poller_->Watch(watch_, mailbox_->fd(), EPOLLIN, std::make_shared<Arrival>(this, alive_)));
  }
  arena_ = std::move(arena);
  if (mailbox_ != nullptr && options_.heap.base != nullptr) {
    arena_->SetHeap(
        std::make_shared<collective::ReadableHeap>(options_.heap.base, options_.heap.bytes));
  }
  MutexLock lock(mutex_);
  for (uint32_t i = 0; i < devices; ++i)
    devices_.push_back(std::make_shared<collective::LocalDevice>(arena_, options_.index, i,
                                                                 couriers_, options_.on_long_wait));
  return absl::OkStatus();
}

// Both workers come to the same answer.
bool CollectivePeers::SharesMemory(const wire::Worker& worker) const {
  return mailbox_ != nullptr && worker.host() == options_.host &&
         !worker.collectives().name().empty();
}

void CollectivePeers::AddMember(const wire::Worker& worker) {
  if (arena_ == nullptr) return;
  const auto [entry, is_new] = members_.try_emplace(worker.index());
  Member& member = entry->second;
  if (!is_new && member.worker.incarnation() == worker.incarnation()) return;
  if (member.pending != nullptr) member.pending->SetGone();
  streams_.Forget(worker.index());
  ++version_;
  member.worker = worker;
  member.pending = std::make_shared<PendingPeer>(NameOf(worker));
  for (int i = 0; i < worker.devices_size(); ++i)
    locations_[DeviceId(worker.devices(i))] = {worker.index(), static_cast<uint32_t>(i)};
  if (worker.index() >= collective::kWorkersMax) {
    return member.pending->Set(absl::UnimplementedError(absl::StrCat(
        "collectives of an island with more than ", collective::kWorkersMax, " workers")));
  }
  // Before a member looks where this worker's devices say what they have read.
  if (const absl::Status reserved = arena_->Reserve(worker.index() + 1); !reserved.ok()) {
    member.worker.set_incarnation(0);  // the next load tries again: all come with it
    return member.pending->Set(reserved);
  }
  if (worker.incarnation() == options_.identity.incarnation.number()) {
    return member.pending->Set(
        std::make_shared<collective::Peer>(options_.identity.name, worker.index(), arena_));
  }
  if (worker.incarnation() == 0) return member.pending->SetGone();
  if (options_.arenas != nullptr) {
    if (auto arena = options_.arenas->Find(worker.incarnation()))
      return member.pending->Set(
          std::make_shared<collective::Peer>(NameOf(worker), worker.index(), std::move(arena)));
  }
  if (!SharesMemory(worker)) {
    member.pending = nullptr;
    return streams_.Open(worker, arena_);
  }
  SendArena(worker, kSendAgain);
  auto early =
      std::ranges::find(early_, worker.incarnation(), [](const auto& each) { return each.first; });
  if (early == early_.end()) return;
  Take(member, std::move(early->second));
  early_.erase(early);
}

void CollectivePeers::UpdateMember(const wire::Worker& worker) {
  if (worker.island() == options_.island && members_.contains(worker.index())) AddMember(worker);
}

// Until it is there, or the worker is gone: then the scheduler says so.
void CollectivePeers::SendArena(const wire::Worker& worker, std::chrono::milliseconds pause) {
  std::vector<int> descriptors = {arena_->descriptor()};
  if (arena_->heap() != nullptr) descriptors.push_back(options_.heap.descriptor);
  const absl::Status sent =
      mailbox_->Send(worker.collectives().name(), worker.collectives().secret(),
                     options_.identity.incarnation.number(), descriptors);
  if (sent.ok()) return;
  if (!absl::IsResourceExhausted(sent))
    return spdlog::warn("No collectives with {}: {}", NameOf(worker), std::string(sent.message()));
  options_.loop->PostAt(Clock::now() + pause, [this, alive = alive_, worker, pause] {
    if (!*alive || members_[worker.index()].worker.incarnation() != worker.incarnation()) return;
    SendArena(worker, std::min(2 * pause, kSendAgainMax));
  });
}

void CollectivePeers::Receive() {
  while (auto mail = mailbox_->Receive()) {
    auto sender = std::ranges::find_if(members_, [&mail](const auto& each) {
      return each.second.worker.incarnation() == mail->sender;
    });
    if (sender != members_.end()) {
      Take(sender->second, std::move(mail->descriptors));
    } else {
      early_.emplace_back(mail->sender, std::move(mail->descriptors));
      if (early_.size() > kEarlyMax) early_.pop_front();
    }
  }
}

void CollectivePeers::Take(Member& member, std::vector<FileDescriptor> descriptors) {
  if (member.pending == nullptr) return;  // it is heard by a stream
  if (descriptors.empty()) {
    const absl::Status none = absl::ResourceExhaustedError(absl::StrCat(
        options_.identity.name, " was at its limit of open files when the memory of ",
        NameOf(member.worker), " arrived: raise it with `ulimit -n` and start the worker again"));
    spdlog::warn("{}", std::string(none.message()));
    return member.pending->Set(none);
  }
  auto arena = collective::Arena::Map(std::move(descriptors[0]),
                                      static_cast<uint32_t>(member.worker.devices_size()));
  if (!arena.ok()) return member.pending->Set(arena.status());
  if (descriptors.size() > 1) {
    auto heap = collective::ReadableHeap::Map(descriptors[1]);
    if (!heap.ok()) return member.pending->Set(heap.status());
    (*arena)->SetHeap(*std::move(heap));
  }
  member.pending->Set(std::make_shared<collective::Peer>(NameOf(member.worker),
                                                         member.worker.index(), *std::move(arena)));
}

std::shared_ptr<PendingPeers> CollectivePeers::PeersOf(std::span<const DeviceId> devices,
                                                       const std::vector<bool>& met) {
  constexpr uint32_t kNoWorker = ~uint32_t{0};
  DeviceId unknown{};  // one of those whose worker is not known
  std::vector<PendingPeers::WorkerDevice> positions;
  std::set<uint32_t> met_workers;
  for (size_t position = 0; position < devices.size(); ++position) {
    const DeviceId device = devices[position];
    auto found = locations_.find(device);
    if (found != locations_.end()) {
      positions.push_back({found->second.first, found->second.second});
      if (met[position]) met_workers.insert(found->second.first);
    } else {
      unknown = device;
      positions.push_back({kNoWorker, 0});
    }
  }
  return std::make_shared<PendingPeers>(positions, [&](uint32_t worker) {
    if (worker == kNoWorker) {
      auto failed = std::make_shared<PendingPeer>("a member");
      failed->Set(
          absl::InternalError(absl::StrCat("the worker of device ", unknown, " was not named")));
      return failed;
    }
    const auto& pending = members_.at(worker).pending;
    if (pending != nullptr) return pending;
    return met_workers.contains(worker) ? streams_.PendingPeerOf(worker) : nullptr;
  });
}

void CollectivePeers::Skip(OrderPosition position) {
  MutexLock lock(mutex_);
  collective::LocalDevice::Skip(devices_, position.number());
}

void CollectivePeers::Close() { streams_.Close(); }

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
