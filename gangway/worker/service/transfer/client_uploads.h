// ClientUploads: the uploads that clients send to this worker, until a node takes their bytes. Each session's bytes are
// in a staging of its own (upload_staging.h). A client on this host may request a block of shared memory for a shard
// and writes the shard there.
//
// Threading: belongs to the worker's event loop; the events are called on it, last in a call. Failure: an upload that
// exceeds a limit is refused, which is an event; a client that breaks the protocol is an error, and the owner refuses
// its stream. Uploads outlive a stream: their client sends the rest on another one or gives them up.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_UPLOADS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_UPLOADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/client_stream.h"
#include "gangway/worker/service/transfer/upload_staging.h"

namespace gangway::worker {

class ClientUploads {
 public:
  struct Events {
    std::function<void(UploadShardStaged)> on_staged;
    std::function<void(UploadRefused)> on_refused;  // its bytes are gone, and no more are taken
  };

  // `pool`: of the blocks that clients write; outlives this.
  ClientUploads(std::shared_ptr<StagingMemory> memory, transport::LendingPool* pool, Events events);

  // What the client of `stream` sends about an upload. After an error the stream must be closed.
  absl::Status OnBulk(ClientStream& stream, const wire::Bulk& bulk);

  // Removes and returns the shards of an upload.
  UploadStaging::Shards Take(SessionId session, UploadId upload);
  // Drops the upload's bytes, also those that still arrive.
  void Refuse(SessionId session, UploadId upload);
  // The uploads that received bytes since the last call.
  std::vector<UploadsMoved> TakeMoved();

  void EndSession(SessionId session) { sessions_.erase(session); }
  void Clear() { sessions_.clear(); }

  size_t count() const;  // with staged bytes
  uint64_t received_bytes() const { return received_bytes_; }
  uint64_t received_shared_bytes() const { return received_shared_bytes_; }  // a part of them

 private:
  absl::Status OnBytes(SessionId session, const wire::ShardName& name,
                       const wire::ShardBytes& bytes);
  absl::Status OnPlaced(SessionId session, const wire::ShardName& name);
  void OnPlaceRequest(ClientStream& stream, const wire::ShardName& name, size_t size);
  void GiveUp(SessionId session, UploadId upload);
  void OnStaged(SessionId session, const wire::ShardName& name);
  UploadStaging& StagingOf(SessionId session);

  const std::shared_ptr<StagingMemory> memory_;
  transport::LendingPool* const pool_;
  const Events events_;
  std::map<SessionId, UploadStaging> sessions_;
  uint64_t received_bytes_ = 0;
  uint64_t received_shared_bytes_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_UPLOADS_H_
