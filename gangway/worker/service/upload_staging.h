// The bytes of uploads between their arrival and their buffers, by upload and shard, of one
// session. A shard comes in chunks, or its client writes it into shared memory that is reserved
// here. Bounded (TM-2). Belongs to the event loop.
#ifndef GANGWAY_WORKER_SERVICE_UPLOAD_STAGING_H_
#define GANGWAY_WORKER_SERVICE_UPLOAD_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/transport/shm/shared_pool.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/aligned_bytes.h"
#include "gangway/worker/service/transfer_plane.h"

namespace gangway::worker {

class UploadStaging {
 public:
  using Shards = std::map<uint32_t, ShardBytes>;

  explicit UploadStaging(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes an upload's chunk; true: the shard is complete. INVALID_ARGUMENT: out of order, or after
  // the last one; RESOURCE_EXHAUSTED: more bytes or shards than may be staged. Then the stream is
  // of no more use.
  absl::StatusOr<bool> Add(const wire::DataChunk& chunk);

  // A place for a shard of which nothing has come. False: not wanted, or too many bytes or shards.
  [[nodiscard]] bool Reserve(uint64_t upload, uint32_t shard,
                             std::unique_ptr<transport::SharedBlock> block);

  // The shard is complete in its place. False: the upload is refused meanwhile. INVALID_ARGUMENT:
  // it has no place.
  absl::StatusOr<bool> Place(uint64_t upload, uint32_t shard);

  size_t SizeOf(uint64_t upload, uint32_t shard) const;

  // Takes all shards of an upload out.
  Shards Take(uint64_t upload);

  // Drops an upload, and every chunk of it that still comes.
  void Refuse(uint64_t upload);

  // Uploads of which bytes came since the last call.
  std::vector<uint64_t> TakeMoved();

  size_t staged_bytes() const { return staged_bytes_; }

 private:
  static constexpr size_t kShardsMax = 65536;
  static constexpr size_t kRefusedMax = 65536;
  struct Shard {
    std::shared_ptr<AlignedBytes> bytes = std::make_shared<AlignedBytes>();
    std::unique_ptr<transport::SharedBlock> block;  // instead; the client may write until complete
    bool complete = false;

    Shard() = default;
    Shard(const Shard&) = delete;
    Shard& operator=(const Shard&) = delete;
    ~Shard() { DropPlace(); }
    size_t size() const { return block != nullptr ? block->bytes().size() : bytes->size(); }
    void DropPlace() {
      if (block != nullptr && !complete) block->Retire();
      block.reset();
    }
  };
  struct Upload {
    std::map<uint32_t, Shard> shards;
    bool moved = false;
  };

  const size_t bytes_max_;
  std::map<uint64_t, Upload> uploads_;
  std::set<uint64_t> refused_;  // the latest of them: a client counts its uploads upwards
  size_t staged_bytes_ = 0;
  size_t shard_count_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_UPLOAD_STAGING_H_
