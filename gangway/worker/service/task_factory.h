// Makes the tasks of nodes, as far as this is host-side work (DF-2): resolves their shards to slots, takes the bytes of
// puts and uploads, and connects fetches and copies to what carries their bytes. Touches no device.
//
// Threading: of the event loop; nothing here blocks. What it makes is run by the owner.
#ifndef GANGWAY_WORKER_SERVICE_TASK_FACTORY_H_
#define GANGWAY_WORKER_SERVICE_TASK_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "gangway/device/device.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/launch/local_executables.h"
#include "gangway/worker/service/memory/local_storages.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/fetched_shard.h"
#include "gangway/worker/service/transfer/transfer_plane.h"
#include "gangway/worker/service/transfer/upload_staging.h"

namespace gangway::worker {

class TaskFactory {
 public:
  // A shard for the client of a session. Any thread; `sent` as in FetchTask::Send.
  using SendShard = std::function<void(SessionId session, FetchId fetch, uint32_t shard,
                                       std::shared_ptr<FetchedShard> bytes,
                                       std::function<void(const absl::Status&)> sent)>;
  // All outlive its last Make.
  struct Options {
    device::Backend* backend = nullptr;
    const LocalStorages* storages = nullptr;
    LocalExecutables* executables = nullptr;
    TransferPlane* transfers = nullptr;
    std::shared_ptr<StagingMemory> staging;
    // The staged bytes of an upload, which its session's stream then keeps no longer.
    std::function<UploadStaging::Shards(SessionId, UploadId)> take_upload;
    std::function<FetchedShard::Source(SessionId)> memory_for;  // of the shards to be fetched
    SendShard send;
  };
  explicit TaskFactory(Options options);

  // For the tasks from now on. Before the first one.
  void SetEnvironment(std::shared_ptr<const TaskEnvironment> environment) {
    environment_ = std::move(environment);
  }
  const TaskEnvironment& environment() const { return *environment_; }

  std::shared_ptr<NodeTask> Make(const PrepareLaunch& action);
  std::shared_ptr<NodeTask> Make(PrepareCopy& action);
  // A put whose bytes do not fit into the staging memory ends with RESOURCE_EXHAUSTED.
  std::shared_ptr<NodeTask> Make(PreparePut& action);
  std::shared_ptr<NodeTask> Make(const PrepareFetch& action);
  std::shared_ptr<NodeTask> Make(const FillUpload& action);

  // Of the shards that came with their nodes.
  uint64_t put_bytes() const { return put_bytes_; }

 private:
  const Options options_;
  std::shared_ptr<const TaskEnvironment> environment_;
  uint64_t put_bytes_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TASK_FACTORY_H_
