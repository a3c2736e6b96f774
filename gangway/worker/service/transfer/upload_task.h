// Makes the device buffers of a complete upload from its staged bytes, on the event loop; the
// runtime keeps the bytes or copies them in the background. All shards are filled, or all fail.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/worker/service/launch/node_task.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class UploadTask final : public NodeTask {
 public:
  struct Shard {
    std::shared_ptr<store::Slot> slot;
    ShardBytes bytes;
  };

  UploadTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
             device::Backend* backend, device::ArraySpec spec, std::string memory_kind,
             std::vector<Shard> shards);

  void Enqueue() override;

 private:
  absl::StatusOr<std::shared_ptr<device::Buffer>> MakeBuffer(const Shard& shard);

  device::Backend* const backend_;
  const device::ArraySpec spec_;
  const std::string memory_kind_;
  std::vector<Shard> shards_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_UPLOAD_TASK_H_
