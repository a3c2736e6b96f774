// Implementation of upload_staging.h.
#include "gangway/worker/service/upload_staging.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::worker {

absl::StatusOr<bool> UploadStaging::Add(const wire::DataChunk& chunk) {
  if (refused_.contains(chunk.upload())) return false;
  Upload& upload = uploads_[chunk.upload()];
  auto [entry, is_new] = upload.shards.try_emplace(chunk.shard());
  if (is_new && ++shard_count_ > kShardsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("More than ", kShardsMax,
                     " upload shards are staged and not yet used; declare uploads as they start."));
  }
  Shard& shard = entry->second;
  if (shard.lent) {  // the client sends it instead
    shard.lent = {};
    shard.charge.Reset();
  }
  if (shard.complete || chunk.offset() != shard.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("A chunk of upload ", chunk.upload(), " shard ", chunk.shard(), " has offset ",
                     chunk.offset(), ", but ", shard.bytes.size(), " bytes had arrived",
                     shard.complete ? " and the shard was complete." : "."));
  }
  GANGWAY_RETURN_IF_ERROR(Store(shard, chunk));
  upload.moved = true;
  shard.complete = chunk.last();
  return shard.complete;
}

absl::Status UploadStaging::Store(Shard& shard, const wire::DataChunk& chunk) {
  const uint64_t needed = shard.bytes.size() + chunk.data().size();
  const uint64_t total = std::max(needed, chunk.total());
  if (total > shard.charge.bytes()) {
    GANGWAY_ASSIGN_OR_RETURN(auto more, memory_->Take(session_, total - shard.charge.bytes(),
                                                      StagingMemory::Order::kIfRoom));
    shard.charge.Add(std::move(more));
    // A shard of untold size grows as it comes: Append doubles its memory, which keeps the copying linear.
    if (shard.bytes.size() == 0 && !shard.bytes.Reserve(total)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the system has no memory for the ", total, " bytes of an upload"));
    }
  }
  if (shard.bytes.Append(chunk.data())) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the system has no memory for the ", needed, " bytes of an upload"));
}

bool UploadStaging::Reserve(uint64_t upload_id, uint32_t shard_index,
                            std::shared_ptr<transport::SharedBlock> block) {
  if (refused_.contains(upload_id) || shard_count_ >= kShardsMax) return false;
  auto charge = memory_->Take(session_, block->bytes().size(), StagingMemory::Order::kIfRoom);
  if (!charge.ok()) return false;
  Upload& upload = uploads_[upload_id];
  auto [entry, is_new] = upload.shards.try_emplace(shard_index);
  if (!is_new) return false;
  ++shard_count_;
  entry->second.charge = *std::move(charge);
  entry->second.lent = transport::LentBlock(std::move(block));
  upload.moved = true;
  return true;
}

absl::StatusOr<bool> UploadStaging::Place(uint64_t upload_id, uint32_t shard_index) {
  if (refused_.contains(upload_id)) return false;
  auto upload = uploads_.find(upload_id);
  if (upload != uploads_.end()) {
    auto shard = upload->second.shards.find(shard_index);
    if (shard != upload->second.shards.end() && shard->second.lent) {
      upload->second.moved = true;
      shard->second.placed = shard->second.lent.Return();
      return shard->second.complete = true;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Shard ", shard_index, " of upload ", upload_id,
                   " was announced in a block that it does not have."));
}

size_t UploadStaging::SizeOf(uint64_t upload, uint32_t shard) const {
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return 0;
  auto found = entry->second.shards.find(shard);
  return found == entry->second.shards.end() ? 0 : found->second.size();
}

UploadStaging::Shards UploadStaging::Take(uint64_t upload) {
  Shards taken;
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return taken;
  for (auto& [index, shard] : entry->second.shards) {
    --shard_count_;
    auto charge = std::make_shared<StagingMemory::Charge>(std::move(shard.charge));
    if (shard.placed != nullptr) {
      std::span<const std::byte> bytes = shard.placed->bytes();
      taken[index] = {bytes, std::move(shard.placed), std::move(charge)};
    } else {
      auto bytes = std::make_shared<AlignedBytes>(std::move(shard.bytes));
      taken[index] = {bytes->span(), bytes, std::move(charge)};
    }
  }
  uploads_.erase(entry);
  return taken;
}

void UploadStaging::Refuse(uint64_t upload) {
  Take(upload);
  refused_.insert(upload);
  if (refused_.size() > kRefusedMax) refused_.erase(refused_.begin());
}

std::vector<uint64_t> UploadStaging::TakeMoved() {
  std::vector<uint64_t> moved;
  for (auto& [id, upload] : uploads_) {
    if (std::exchange(upload.moved, false)) moved.push_back(id);
  }
  return moved;
}

}  // namespace gangway::worker
