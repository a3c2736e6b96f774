// Implementation of upload_staging.h.
#include "gangway/worker/service/upload_staging.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gangway::worker {

absl::StatusOr<bool> UploadStaging::Add(const wire::DataChunk& chunk) {
  if (refused_.contains(chunk.upload())) return false;
  Upload& upload = uploads_[chunk.upload()];
  auto [entry, is_new] = upload.shards.try_emplace(chunk.shard());
  if (is_new && ++shard_count_ > kShardsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "More than ", kShardsMax,
        " shards of uploads came before anything took them; declare uploads as they start."));
  }
  Shard& shard = entry->second;
  if (shard.complete || chunk.offset() != shard.bytes->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("A chunk of upload ", chunk.upload(), " shard ", chunk.shard(), " has offset ",
                     chunk.offset(), " where ", shard.bytes->size(), " bytes came before",
                     shard.complete ? " and the shard was complete." : "."));
  }
  if (staged_bytes_ + chunk.data().size() > bytes_max_ || !shard.bytes->Append(chunk.data())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("The uploads of this session that no buffer was made of yet hold ",
                     staged_bytes_, " bytes, the most is ", bytes_max_,
                     "; raise the worker's staging limit or upload less at once."));
  }
  staged_bytes_ += chunk.data().size();
  upload.moved = true;
  shard.complete = chunk.last() || chunk.has_failure();
  return shard.complete;
}

size_t UploadStaging::ShardBytes(uint64_t upload, uint32_t shard) const {
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return 0;
  auto found = entry->second.shards.find(shard);
  return found == entry->second.shards.end() ? 0 : found->second.bytes->size();
}

UploadStaging::Shards UploadStaging::Take(uint64_t upload) {
  Shards taken;
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return taken;
  for (auto& [index, shard] : entry->second.shards) {
    staged_bytes_ -= shard.bytes->size();
    --shard_count_;
    taken[index] = std::move(shard.bytes);
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
