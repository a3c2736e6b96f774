// The uploads of which something has come to this worker: their nodes, their bytes, or the reason why no bytes come.
// The bytes themselves are staged by the service.
//
// A node claims its upload, and each shard that it wants comes in whole. Node and bytes come in either order. An upload
// is complete once all wanted shards are staged, and failed once its bytes were refused or are of the wrong size; the
// owner of the nodes then fills it (Take) or forgets it.
//
// What the service must do is added to `actions`. Clients choose the keys, and their input is not trusted: what is not
// known is ignored, and records of uploads that no node has claimed are limited (TM-2). Not thread-safe.
#ifndef GANGWAY_WORKER_CORE_UPLOADS_H_
#define GANGWAY_WORKER_CORE_UPLOADS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/identity.h"

namespace gangway::worker {

struct UploadKey {
  SessionId session;
  UploadId upload{};
  auto operator<=>(const UploadKey&) const = default;
};

class Uploads {
 public:
  // Of an upload that a node has claimed.
  struct Progress {
    Ordinal node;
    bool complete = false;
    const wire::Failure* failure = nullptr;  // null: it has not failed
  };

  explicit Uploads(Identity worker) : worker_(std::move(worker)) {}

  size_t size() const { return uploads_.size(); }
  void Clear() { uploads_.clear(); }

  // --- Something comes ---

  // The node comes, which wants these shards. False: another node has claimed the upload.
  bool Claim(const UploadKey& key, Ordinal node, uint64_t shard_bytes,
             const std::vector<uint32_t>& wanted, std::vector<Action>& actions);
  // All bytes of a shard are staged. If they are of the wrong size, all that is staged goes at once, whenever the node
  // is released.
  void Stage(const UploadKey& key, uint32_t shard, uint64_t bytes, std::vector<Action>& actions);
  // The bytes were dropped, for this reason. If no node has claimed the upload, one that does fails; `unwanted`: none
  // will.
  void Refuse(const UploadKey& key, wire::Failure failure, bool unwanted);

  // nullopt: no node has claimed it, or it was filled or forgotten.
  std::optional<Progress> ProgressOf(const UploadKey& key) const;

  // --- It goes ---

  // The node fills its storage with the staged bytes.
  void Take(const UploadKey& key) { uploads_.erase(key); }
  // The node that has claimed it has ended, or will not fill it.
  void Forget(const UploadKey& key, std::vector<Action>& actions);
  // The node that came for it has failed: bytes that came before it are not needed, unless another node has claimed
  // them.
  void DropUnclaimed(const UploadKey& key, std::vector<Action>& actions);

  // --- The session ends ---

  std::vector<UploadKey> KeysOf(SessionId session) const;
  // No more bytes come. An upload that is complete, or that has failed, waits only for its node's release, and stays;
  // any other is forgotten. Returns the node that has claimed a forgotten one.
  std::optional<Ordinal> Abandon(const UploadKey& key, std::vector<Action>& actions);

 private:
  struct Upload {
    bool IsComplete() const { return missing.empty() && !failure; }

    std::optional<Ordinal> node;  // absent: it has not come
    std::optional<wire::Failure> failure;
    std::map<uint32_t, uint64_t>
        early;  // bytes of the shards that were staged before the node came
    // Once the node has come:
    uint64_t shard_bytes = 0;
    std::set<uint32_t> missing;  // the shards that it wants and that are not staged
  };

  // Of a shard that the upload's node wants.
  void CheckSize(const UploadKey& key, uint32_t shard, uint64_t bytes, Upload& upload,
                 std::vector<Action>& actions) const;

  const Identity worker_;
  std::map<UploadKey, Upload> uploads_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_UPLOADS_H_
