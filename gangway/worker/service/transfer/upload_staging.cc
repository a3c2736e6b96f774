// Implementation of upload_staging.h.
#include "gangway/worker/service/transfer/upload_staging.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/transport/bulk/messages.h"

namespace gangway::worker {

absl::StatusOr<bool> UploadStaging::Add(UploadId upload_id, uint32_t shard_index,
                                        const wire::ShardBytes& bytes) {
  if (refused_.contains(upload_id)) return false;
  Upload& upload = uploads_[upload_id];
  auto [entry, is_new] = upload.shards.try_emplace(shard_index);
  if (is_new && ++shard_count_ > kShardsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("More than ", kShardsMax,
                     " upload shards are staged and not yet used; declare uploads as they start."));
  }
  Shard& shard = entry->second;
  if (shard.staged.lends()) shard.charge.Reset();  // the client sends it instead
  absl::Status taken =
      shard.staged.Take(transport::PieceOf(bytes), bytes.data(), [&](uint64_t size) {
        auto more = memory_->Take(session_, size, StagingMemory::Order::kIfRoom);
        if (!more.ok()) return more.status();
        shard.charge.Add(*std::move(more));
        return absl::OkStatus();
      });
  if (absl::IsInvalidArgument(taken)) {
    return absl::InvalidArgumentError(absl::StrCat("Upload ", upload_id, ", shard ", shard_index,
                                                   ": ", std::string(taken.message())));
  }
  GANGWAY_RETURN_IF_ERROR(taken);
  upload.moved = true;
  return shard.staged.complete();
}

bool UploadStaging::Reserve(UploadId upload_id, uint32_t shard_index,
                            std::shared_ptr<transport::SharedBlock> block) {
  if (refused_.contains(upload_id) || shard_count_ >= kShardsMax) return false;
  auto charge = memory_->Take(session_, block->bytes().size(), StagingMemory::Order::kIfRoom);
  if (!charge.ok()) return false;
  Upload& upload = uploads_[upload_id];
  auto [entry, is_new] = upload.shards.try_emplace(shard_index);
  if (!is_new) return false;
  ++shard_count_;
  entry->second.charge = *std::move(charge);
  entry->second.staged.Lend(std::move(block));
  upload.moved = true;
  return true;
}

absl::StatusOr<bool> UploadStaging::Place(UploadId upload_id, uint32_t shard_index) {
  if (refused_.contains(upload_id)) return false;
  auto upload = uploads_.find(upload_id);
  if (upload != uploads_.end()) {
    auto shard = upload->second.shards.find(shard_index);
    if (shard != upload->second.shards.end() && shard->second.staged.Place().ok()) {
      upload->second.moved = true;
      return true;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Shard ", shard_index, " of upload ", upload_id,
                   " was announced in a block that it does not have."));
}

size_t UploadStaging::SizeOf(UploadId upload, uint32_t shard) const {
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return 0;
  auto found = entry->second.shards.find(shard);
  return found == entry->second.shards.end() ? 0 : found->second.staged.size();
}

UploadStaging::Shards UploadStaging::Take(UploadId upload) {
  Shards taken;
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return taken;
  for (auto& [index, shard] : entry->second.shards) {
    --shard_count_;
    auto charge = std::make_shared<StagingMemory::Charge>(std::move(shard.charge));
    transport::StagedShard::Bytes bytes = shard.staged.TakeBytes();
    taken[index] = {bytes.bytes, std::move(bytes.owner), std::move(charge)};
  }
  uploads_.erase(entry);
  return taken;
}

void UploadStaging::Refuse(UploadId upload) {
  Take(upload);
  refused_.insert(upload);
  if (refused_.size() > kRefusedMax) refused_.erase(refused_.begin());
}

std::vector<UploadId> UploadStaging::TakeMoved() {
  std::vector<UploadId> moved;
  for (auto& [id, upload] : uploads_) {
    if (std::exchange(upload.moved, false)) moved.push_back(id);
  }
  return moved;
}

}  // namespace gangway::worker
