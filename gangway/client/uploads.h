// Uploads: arrays whose bytes this session brings. The bytes of small ones travel with their declaration (Put), several
// arrays in one operation where they meet in a batch; while many of these have not ended, further ones are pushed as
// large ones are (TM-2). Of what is pushed, it keeps the uploads of which not all shards have been pushed, the pushes
// that wait to be sent beside the batch, and which process of each worker is to receive the bytes.
//
// Threading: thread-safe, but for Open, which comes before all else; what says so, on the loop only. Its lock is taken
// before the Submitter's. `released` of a push never runs under it.
//
// Failure: an upload that is pushed wrongly, or whose link is lost, is abandoned: the controller fails its array.
// Pushes that are of no use any more are dropped, and their bytes released.
#ifndef GANGWAY_CLIENT_UPLOADS_H_
#define GANGWAY_CLIENT_UPLOADS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/data_links.h"
#include "gangway/client/handles.h"
#include "gangway/client/submitter.h"

namespace gangway::client {

class Uploads {
 public:
  Uploads(EventLoop* loop, Activity* activity, Submitter* submitter, Handles* handles)
      : loop_(loop), activity_(*activity), submitter_(*submitter), handles_(*handles) {}

  void Open(DataLinks* links) { links_ = links; }  // on the loop
  // Which process of the worker new uploads are for.
  void SetDestination(WorkerKey worker, Destination destination) GANGWAY_EXCLUDES(mutex_);

  // As in Client; Begin is its Upload.
  OperationId Put(ArrayHandle array, const ArraySpec& spec,
                  std::span<const std::string_view> shards, StatusCallback ended)
      GANGWAY_EXCLUDES(mutex_);
  UploadId Begin(ArrayHandle array, const ArraySpec& spec, StatusCallback ended)
      GANGWAY_EXCLUDES(mutex_);
  void Push(UploadId upload, uint32_t shard, std::string_view data, std::function<void()> released)
      GANGWAY_EXCLUDES(mutex_);
  void Reserve(UploadId upload, uint32_t shard,
               std::function<void(std::shared_ptr<char> place)> placed) GANGWAY_EXCLUDES(mutex_);
  void Abandon(UploadId upload, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

  // Whether pushes wait.
  bool HoldsPushes() const GANGWAY_EXCLUDES(mutex_);
  // Takes the pushes that wait; the result sends them. Both on the loop.
  std::function<void()> TakeWaiting() GANGWAY_EXCLUDES(mutex_);

  // Not all of its bytes will arrive.
  void Fail(UploadId upload, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // The cluster has failed it, so its bytes are of no use. On the loop.
  void Forget(UploadId upload) GANGWAY_EXCLUDES(mutex_);
  // The session is lost. On the loop.
  void Clear() GANGWAY_EXCLUDES(mutex_);

 private:
  // An upload whose bytes have not all been pushed.
  struct Uploading {
    Devices devices;
    std::map<WorkerKey, Destination> destinations;
    uint64_t shard_bytes = 0;
    std::vector<bool> pushed;
    size_t left = 0;
  };
  // Sent by the next flush, beside the batch.
  struct Outgoing {
    WorkerKey worker;
    client::Push push;
    std::function<void(std::shared_ptr<char>)> placed;  // set: only requests a place for the push
  };

  // Null: it must be pushed, and `ended` is left as it is.
  std::optional<OperationId> PutWithDeclaration(ArrayHandle array, const ArraySpec& spec,
                                                std::span<const std::string_view> shards,
                                                StatusCallback& ended) GANGWAY_EXCLUDES(mutex_);
  bool TakePutRoom(uint64_t cost) GANGWAY_REQUIRES(mutex_);
  StatusCallback ReturningPutRoom(uint64_t cost, StatusCallback ended);
  void LookForPutRoom() GANGWAY_EXCLUDES(mutex_);
  std::map<WorkerKey, Destination> DestinationsOf(const std::vector<uint32_t>& devices) const
      GANGWAY_REQUIRES(mutex_);
  std::optional<Outgoing> TakePush(UploadId upload, uint32_t shard, std::string_view data)
      GANGWAY_EXCLUDES(mutex_);
  // OK: the shard may be pushed.
  absl::Status Check(const Uploading& uploading, uint32_t shard, size_t bytes) const;
  Outgoing NewPush(UploadId upload, const Uploading& uploading, uint32_t shard) const;
  bool Wait(Outgoing& outgoing) GANGWAY_EXCLUDES(mutex_);
  void AbandonLocked(UploadId upload, const absl::Status& why) GANGWAY_REQUIRES(mutex_);
  void Withdraw(UploadId upload) GANGWAY_EXCLUDES(mutex_);

  EventLoop* const loop_;
  Activity& activity_;
  Submitter& submitter_;
  Handles& handles_;
  DataLinks* links_ = nullptr;  // set by Open, constant afterwards

  mutable Mutex mutex_;
  absl::flat_hash_map<UploadId, Uploading> uploads_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t put_cost_ GANGWAY_GUARDED_BY(mutex_) = 0;  // of the latest operation that puts
  // Of all puts that have not ended (TM-2), where the session is told of ends.
  uint64_t puts_under_way_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool looks_for_put_room_ GANGWAY_GUARDED_BY(mutex_) = false;  // Submitter::BeginLook
  std::vector<Outgoing> waiting_ GANGWAY_GUARDED_BY(mutex_);
  std::map<WorkerKey, Destination> destinations_ GANGWAY_GUARDED_BY(mutex_);  // of new uploads
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_UPLOADS_H_
