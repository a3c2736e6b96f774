// Implementation of peer.h.
#include "gangway/collective/execution/peer.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/execution/launch.h"

namespace gangway::collective {

void Peer::Join(const std::shared_ptr<Launch>& launch) const {
  absl::Status failed;
  {
    MutexLock lock(mutex_);
    failed = failed_;
    ForgetEnded();
    launches_.push_back(launch);
  }
  if (courier_ != nullptr) courier_->Begin();  // which looks at is_busy
  if (!failed.ok()) launch->Abort(failed);
}

void Peer::Fail(const absl::Status& why) {
  std::vector<std::shared_ptr<Launch>> launches;
  {
    MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = why;
    for (const auto& each : launches_)
      if (auto launch = each.lock()) launches.push_back(std::move(launch));
  }
  for (const auto& launch : launches) launch->Abort(why);
}

bool Peer::is_busy() const {
  MutexLock lock(mutex_);
  return std::ranges::any_of(launches_, [](const auto& launch) { return !launch.expired(); });
}

void Peer::ForgetEnded() const {
  std::erase_if(launches_, [](const auto& launch) { return launch.expired(); });
}

void Couriers::Set(uint32_t worker, std::shared_ptr<Courier> courier) {
  MutexLock lock(mutex_);
  if (courier == nullptr) {
    by_worker_.erase(worker);
  } else {
    by_worker_[worker] = std::move(courier);
  }
}

void Couriers::SendLeft(std::span<const LeftUpTo> lefts) const {
  std::vector<std::shared_ptr<Courier>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [worker, courier] : by_worker_) all.push_back(courier);
  }
  for (const auto& courier : all) courier->SendLeft(lefts);
}

absl::StatusOr<Mirror> Mirror::Create(uint32_t worker, uint32_t devices) {
  GANGWAY_ASSIGN_OR_RETURN(auto arena, Arena::Anonymous(devices));
  return Mirror(std::move(arena), worker);
}

absl::Status Mirror::CheckDevice(uint32_t device) const {
  if (device < arena_->devices()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it told of its device ", device, ", but has ", arena_->devices(), " devices"));
}

absl::Status Mirror::Take(const Published& message, std::span<const std::byte> ranges,
                          const Arena& local) {
  GANGWAY_RETURN_IF_ERROR(CheckDevice(message.device));
  GANGWAY_RETURN_IF_ERROR(transport::CheckRanges(message.ranges, kMessageBytes, ranges.size()));
  if (message.sequence == 0) return absl::InvalidArgumentError("a message without a number");
  Region& region = arena_->own(message.device);
  // Only messages to this worker come here, so one that its sender has written over may still be in its slot.
  for (Region::Header& header : region.headers) {
    const uint64_t sequence = header.sequence.load(std::memory_order_relaxed);
    if (sequence != 0 && message.sequence - sequence >= kSlots) header.sequence = 0;
  }
  const MessageWriter writer(region, message.sequence);
  transport::Scatter(ranges, message.ranges, writer.data());
  writer.Publish(message.key);
  Wake(message.device, Deed::kWritten, local);
  return absl::OkStatus();
}

absl::Status Mirror::Take(const ReadUpTo& read, const Arena& local, uint32_t local_worker) {
  GANGWAY_RETURN_IF_ERROR(CheckDevice(read.device));
  if (read.source >= local.devices()) {
    return absl::InvalidArgumentError(absl::StrCat("it has read messages of device ", read.source,
                                                   ", and there are ", local.devices()));
  }
  auto& consumed = arena_->own(read.device).consumed[PeerNumber(local_worker, read.source)];
  const uint64_t before = consumed.load(std::memory_order_relaxed);
  if (before != read.sequence && IsReadUpTo(before, read.sequence)) {
    return absl::InvalidArgumentError(
        absl::StrCat("its device ", read.device, " has read up to message ", before, " of device ",
                     read.source, ", and now it told of message ", read.sequence));
  }
  consumed.store(read.sequence, std::memory_order_release);
  Wake(read.device, Deed::kRead, local);
  return absl::OkStatus();
}

absl::Status Mirror::Take(const LeftUpTo& left, const Arena& local) {
  GANGWAY_RETURN_IF_ERROR(CheckDevice(left.device));
  // What two threads of the worker say may come in either order; only one thread writes the mirror.
  Region& region = arena_->own(left.device);
  const auto raise = [](std::atomic<uint64_t>& known, uint64_t order) {
    if (order > known.load(std::memory_order_relaxed))
      known.store(order, std::memory_order_seq_cst);
  };
  raise(region.failed, left.failed);  // first, since it says how the device has left
  raise(region.left, left.order);
  Wake(left.device, Deed::kRead, local);
  return absl::OkStatus();
}

void Mirror::Wake(uint32_t device, Deed deed, const Arena& local) {
  FutexWord& pulse = arena_->own(device).pulse;
  pulse.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t sleeps = SleepsFor(PeerNumber(worker_, device), deed);
  for (uint32_t i = 0; i < local.devices(); ++i) {
    if (local.region(i).awaited.load(std::memory_order_seq_cst) == sleeps)
      return FutexWake(pulse, static_cast<FutexBits>(deed));
  }
}

}  // namespace gangway::collective
