// Implementation of upload_staging.h.
#include "gangway/worker/service/upload_staging.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gangway::worker {

absl::StatusOr<bool> UploadStaging::Add(const wire::DataChunk& chunk) {
  auto [entry, is_new] = uploads_[chunk.upload()].try_emplace(chunk.shard());
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
  shard.complete = chunk.last() || chunk.has_failure();
  return shard.complete;
}

size_t UploadStaging::ShardBytes(uint64_t upload, uint32_t shard) const {
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return 0;
  auto found = entry->second.find(shard);
  return found == entry->second.end() ? 0 : found->second.bytes->size();
}

UploadStaging::Shards UploadStaging::Take(uint64_t upload) {
  Shards taken;
  auto entry = uploads_.find(upload);
  if (entry == uploads_.end()) return taken;
  for (auto& [index, shard] : entry->second) {
    staged_bytes_ -= shard.bytes->size();
    --shard_count_;
    taken[index] = std::move(shard.bytes);
  }
  uploads_.erase(entry);
  return taken;
}

}  // namespace gangway::worker
