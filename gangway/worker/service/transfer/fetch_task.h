// Reads shards back to the host and hands them to the session's data stream. The reads are issued
// on the devices' threads, in order, so that a later donation waits for them, or on the loop while
// the devices are idle; the bytes are sent from the event loop. A shard for which there is no host
// memory now is shared, so that a later donation copies it, and read when its session's turn comes
// (staging_memory.h).
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_FETCH_TASK_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_FETCH_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/transfer/fetched_shard.h"

namespace gangway::worker {

class FetchTask final : public NodeTask {
 public:
  struct Part {
    std::shared_ptr<store::Slot> from;
    uint32_t shard = 0;
  };
  // Sends one shard, from any thread; calls `sent` once, with OK when the stream has taken it all.
  using Send = std::function<void(uint32_t shard, std::shared_ptr<FetchedShard> bytes,
                                  std::function<void(const absl::Status&)> sent)>;

  FetchTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
            std::vector<Part> parts, FetchedShard::Source memory, Send send);

  void Enqueue() override;
  bool RunHere(ShortLaunches& launches) override;

 private:
  void Read(const Part& part);
  void AwaitMemory(const Part& part, size_t size);
  void ReadInto(const Part& part, const std::shared_ptr<device::Buffer>& buffer, size_t size,
                StagingMemory::Charge charge, bool has_device);
  void Fail(const Part& part, const absl::Status& status);
  void Sent(const Part& part, const absl::Status& status);

  const std::vector<Part> parts_;
  const FetchedShard::Source memory_;
  const Send send_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_FETCH_TASK_H_
