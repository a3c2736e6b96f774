// Makes the device buffers of a complete upload or put from its bytes, on the event loop; the
// runtime copies small ones at once, and keeps larger ones or copies them in the background. All shards are filled, or
// all fail.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_

#include <memory>
#include <vector>

#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/memory/held_shards.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class UploadTask final : public NodeTask {
 public:
  struct Shard {
    std::shared_ptr<store::Slot> slot;
    std::shared_ptr<const HeldShards> storage;  // what the slot's shards are
    ShardBytes bytes;
  };

  UploadTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
             device::Backend* backend, std::vector<Shard> shards);

  // Before Enqueue: the bytes are not to be used, for this reason.
  void Refuse(const absl::Status& why) { Note(why, kNoDevice); }
  void Enqueue() override;

 private:
  static constexpr int kNoDevice = -1;

  absl::StatusOr<std::shared_ptr<device::Buffer>> MakeBuffer(const Shard& shard);

  device::Backend* const backend_;
  std::vector<Shard> shards_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_
