// Implementation of uploads.h.
#include "gangway/worker/core/uploads.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gangway::worker {
namespace {

constexpr size_t kRefusedMax = 65'536;

}  // namespace

bool Uploads::Claim(const UploadKey& key, Ordinal node, uint64_t shard_bytes,
                    const std::vector<uint32_t>& wanted, std::vector<Action>& actions) {
  Upload& upload = uploads_[key];
  if (upload.node) return false;
  upload.node = node;
  upload.shard_bytes = shard_bytes;
  const std::map<uint32_t, uint64_t> early = std::exchange(upload.early, {});
  for (const uint32_t shard : wanted) {
    const auto staged = early.find(shard);
    if (staged == early.end()) {
      upload.missing.insert(shard);
    } else {
      CheckSize(key, shard, staged->second, upload, actions);
    }
  }
  return true;
}

void Uploads::Stage(const UploadKey& key, uint32_t shard, uint64_t bytes,
                    std::vector<Action>& actions) {
  Upload& upload = uploads_[key];
  if (!upload.node) {
    upload.early[shard] = bytes;
  } else if (upload.missing.erase(shard) != 0) {
    CheckSize(key, shard, bytes, upload, actions);
  }
}

void Uploads::CheckSize(const UploadKey& key, uint32_t shard, uint64_t bytes, Upload& upload,
                        std::vector<Action>& actions) const {
  if (upload.failure || bytes == upload.shard_bytes) return;
  upload.failure =
      worker_.Fail(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("Shard ", shard, " of upload ", key.upload, " arrived with ", bytes,
                                " bytes instead of ", upload.shard_bytes, "."),
                   {}, nullptr);
  actions.emplace_back(DropUpload{key.session, key.upload});
}

void Uploads::Refuse(const UploadKey& key, wire::Failure failure, bool unwanted) {
  auto entry = uploads_.find(key);
  if (entry == uploads_.end()) {
    // Its node, if one comes, fails for this reason. Without the record it would wait for its bytes, for a limited
    // time.
    if (unwanted || uploads_.size() >= kRefusedMax) return;
    entry = uploads_.try_emplace(key).first;
  }
  Upload& upload = entry->second;
  if (!upload.node && unwanted) {
    uploads_.erase(entry);
    return;
  }
  upload.early.clear();
  if (upload.failure) return;
  upload.failure = std::move(failure);
  worker_.Locate(upload.node.value_or(Ordinal()), nullptr, *upload.failure);
}

std::optional<Uploads::Progress> Uploads::ProgressOf(const UploadKey& key) const {
  const auto entry = uploads_.find(key);
  if (entry == uploads_.end() || !entry->second.node) return std::nullopt;
  const Upload& upload = entry->second;
  return Progress{.node = *upload.node,
                  .complete = upload.IsComplete(),
                  .failure = upload.failure ? &*upload.failure : nullptr};
}

void Uploads::Forget(const UploadKey& key, std::vector<Action>& actions) {
  if (uploads_.erase(key) != 0) actions.emplace_back(DropUpload{key.session, key.upload});
}

void Uploads::DropUnclaimed(const UploadKey& key, std::vector<Action>& actions) {
  const auto entry = uploads_.find(key);
  if (entry != uploads_.end() && entry->second.node) return;
  if (entry != uploads_.end()) uploads_.erase(entry);
  actions.emplace_back(DropUpload{key.session, key.upload});  // also those that still come
}

std::vector<UploadKey> Uploads::KeysOf(SessionId session) const {
  std::vector<UploadKey> keys;
  for (auto it = uploads_.lower_bound({session, UploadId()});
       it != uploads_.end() && it->first.session == session; ++it) {
    keys.push_back(it->first);
  }
  return keys;
}

std::optional<Ordinal> Uploads::Abandon(const UploadKey& key, std::vector<Action>& actions) {
  const auto entry = uploads_.find(key);
  if (entry == uploads_.end()) return std::nullopt;
  const std::optional<Ordinal> node = entry->second.node;
  if (node && (entry->second.IsComplete() || entry->second.failure)) return std::nullopt;
  Forget(key, actions);
  return node;
}

}  // namespace gangway::worker
