// Implementation of upload_task.h.
#include "gangway/worker/service/transfer/upload_task.h"

#include <utility>

#include "gangway/base/status.h"

namespace gangway::worker {
namespace {

// Copying so few bytes costs less than to keep them until a buffer and its readers are gone.
constexpr size_t kCopiedBytesMax = size_t{16} << 10;

}  // namespace

UploadTask::UploadTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                       device::Backend* backend, std::vector<Shard> shards)
    : NodeTask(std::move(environment), ordinal, wire::LabelOf("upload"), shards.size()),
      backend_(backend),
      shards_(std::move(shards)) {}

void UploadTask::Enqueue() {
  std::vector<std::shared_ptr<device::Buffer>> buffers;
  std::optional<wire::Failure> failed = failure();
  for (size_t i = 0; i < shards_.size() && !failed; ++i) {
    auto buffer = MakeBuffer(shards_[i]);
    if (buffer.ok()) {
      buffers.push_back(*std::move(buffer));
    } else {
      Note(buffer.status(), shards_[i].slot->name().device);
      failed = failure();
    }
  }
  if (failed) {
    for (const Shard& shard : shards_) {
      FailSlot(environment(), *shard.slot, *failed);
      EndPart();
    }
    return;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    std::weak_ptr<const std::byte> borrowed = shards_[i].bytes.shared();
    shards_[i].bytes = {};
    Deliver(*shards_[i].slot, {.buffer = std::move(buffers[i]), .borrowed = std::move(borrowed)});
  }
}

absl::StatusOr<std::shared_ptr<device::Buffer>> UploadTask::MakeBuffer(const Shard& shard) {
  const bool is_copied = shard.bytes.bytes.size() <= kCopiedBytesMax;
  const bool is_kept = backend_->capabilities().host_zero_copy && !is_copied;
  auto semantics =
      is_kept ? device::HostSemantics::kZeroCopy : device::HostSemantics::kUntilTransferDone;
  if (is_copied) semantics = device::HostSemantics::kCopyDuringCall;
  // The callback owns the bytes: they live until the runtime releases them. Not Owed, which would
  // keep this task alive as long as a zero-copy buffer keeps the bytes.
  // Bytes that become the buffer's memory are the device's from then on.
  auto charge = is_kept ? nullptr : shard.bytes.charge;
  auto done = CountOwed(environment().callbacks,
                        [charge = std::move(charge), owner = shard.bytes.owner](absl::Status) {});
  GANGWAY_ASSIGN_OR_RETURN(
      auto buffer,
      backend_->BufferFromHost(shard.slot->name().device, shard.storage->memory_kind,
                               shard.storage->spec, shard.bytes.bytes, semantics, std::move(done)));
  return std::shared_ptr<device::Buffer>(std::move(buffer));
}

}  // namespace gangway::worker
