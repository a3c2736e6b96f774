// Implementation of upload_task.h.
#include "gangway/worker/service/transfer/upload_task.h"

#include <utility>

#include "gangway/base/status.h"

namespace gangway::worker {

UploadTask::UploadTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
                       device::Backend* backend, device::ArraySpec spec, std::string memory_kind,
                       std::vector<Shard> shards)
    : NodeTask(std::move(environment), ordinal, wire::LabelOf("upload"), shards.size()),
      backend_(backend),
      spec_(std::move(spec)),
      memory_kind_(std::move(memory_kind)),
      shards_(std::move(shards)) {}

void UploadTask::Enqueue() {
  std::vector<std::shared_ptr<device::Buffer>> buffers;
  for (const Shard& shard : shards_) {
    auto buffer = MakeBuffer(shard);
    if (!buffer.ok()) {
      Note(buffer.status(), shard.slot->name().device);
      break;
    }
    buffers.push_back(*std::move(buffer));
  }
  if (std::optional<wire::Failure> failed = failure()) {
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
  auto semantics = backend_->capabilities().host_zero_copy
                       ? device::HostSemantics::kZeroCopy
                       : device::HostSemantics::kUntilTransferDone;
  // The callback owns the bytes: they live until the runtime releases them. Not Owed, which would
  // keep this task alive as long as a zero-copy buffer keeps the bytes.
  // Bytes that become the buffer's memory are the device's from then on.
  auto charge = backend_->capabilities().host_zero_copy ? nullptr : shard.bytes.charge;
  auto done = CountOwed(environment().callbacks,
                        [charge = std::move(charge), owner = shard.bytes.owner](absl::Status) {});
  GANGWAY_ASSIGN_OR_RETURN(auto buffer,
                           backend_->BufferFromHost(shard.slot->name().device, memory_kind_, spec_,
                                                    shard.bytes.bytes, semantics, std::move(done)));
  return std::shared_ptr<device::Buffer>(std::move(buffer));
}

}  // namespace gangway::worker
