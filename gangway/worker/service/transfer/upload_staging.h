// Holds the upload bytes of one session, by upload and shard, from their arrival until their
// buffers are made. A shard arrives in chunks, or its client writes it into shared memory that is
// reserved here. Bounded (TM-2): the bytes are charged to the worker's staging memory, those of a shard whose size its
// first chunk tells all at once. An upload that is refused leaves no bytes behind. Belongs to the event loop.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_STAGING_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/transport/bulk/incoming_shard.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class UploadStaging {
 public:
  using Shards = std::map<uint32_t, ShardBytes>;

  UploadStaging(std::shared_ptr<StagingMemory> memory, SessionId session)
      : memory_(std::move(memory)), session_(session) {}

  // Adds a piece of a shard; true: the shard is complete. INVALID_ARGUMENT: the piece is out of
  // order or does not fit: the stream must be closed. RESOURCE_EXHAUSTED: it exceeds the limit on
  // staged bytes or shards: the upload is refused.
  absl::StatusOr<bool> Add(UploadId upload, uint32_t shard, const wire::ShardBytes& bytes);

  // Reserves a block for a shard that has not begun: its client writes it until Place. False: the upload is refused,
  // the shard has begun, or a limit on bytes or shards is reached.
  [[nodiscard]] bool Reserve(UploadId upload, uint32_t shard,
                             std::shared_ptr<transport::SharedBlock> block);

  // The shard is complete in its block. False: the upload has been refused. INVALID_ARGUMENT: the
  // shard has no block.
  absl::StatusOr<bool> Place(UploadId upload, uint32_t shard);

  size_t SizeOf(UploadId upload, uint32_t shard) const;

  // Removes and returns all shards of an upload, with what they are charged.
  Shards Take(UploadId upload);

  // Drops an upload, and every chunk of it that still arrives.
  void Refuse(UploadId upload);

  // The uploads that received bytes since the last call.
  std::vector<UploadId> TakeMoved();

  size_t upload_count() const { return uploads_.size(); }

 private:
  static constexpr size_t kShardsMax = 65536;
  static constexpr size_t kRefusedMax = 65536;
  struct Shard {
    StagingMemory::Charge charge;  // returned after the bytes are
    transport::StagedShard staged;
  };
  struct Upload {
    std::map<uint32_t, Shard> shards;
    bool moved = false;
  };

  const std::shared_ptr<StagingMemory> memory_;
  const SessionId session_;
  std::map<UploadId, Upload> uploads_;
  std::set<UploadId> refused_;  // the latest ones, since upload ids increase
  size_t shard_count_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_STAGING_H_
