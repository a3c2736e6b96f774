// Copies shards: within this worker, to other workers, and from them.
//
// A local shard is copied on its source device's thread, so that the copy runs after the programs
// that produce the shard and before those that consume it; a shard that stays in place shares the
// buffer. An outgoing shard is offered to the transfer plane, which shares it until the receiver
// has it (OB-1). Incoming shards are requested at once. If a result has incoming shards, all its
// local shards are filled together, or fail together.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/worker/service/launch/node_task.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class CopyTask final : public NodeTask {
 public:
  struct Move {
    std::shared_ptr<store::Slot> from;
    std::shared_ptr<store::Slot> to;
  };
  struct Send {
    std::shared_ptr<store::Slot> from;
    uint32_t shard = 0;
    DeviceId to_device;
  };
  struct Receive {
    std::shared_ptr<store::Slot> to;
    DeviceId from_device;
  };
  struct Parts {
    std::vector<Move> moves;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    device::ArraySpec spec;  // of the result's shards
    std::string memory_kind;
    std::string token;
    SessionId session;
  };

  // `backend` and `plane` outlive this.
  CopyTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
           device::Backend* backend, TransferPlane* plane, Parts parts);

  void NamePeers(std::vector<WorkerRef>&& peers) override { peers_ = std::move(peers); }
  void Enqueue() override;
  // Ends the transfers to and from other workers.
  void Cancel(const wire::Failure& why) override;

 private:
  // The contents of one shard of a result with incoming shards.
  struct Gathered {
    store::Content content;  // of a move
    ShardBytes received;     // of a receive
  };

  void RunMove(size_t index);
  absl::StatusOr<store::Content> CopyOrShare(const Move& move);
  void OfferShard(const Send& send);
  // A shard that this worker holds has failed, and with it the copy.
  void FailSource(const TransferKey& key, int device, const absl::Status& why);
  void AskFor(size_t index);
  void Gather(size_t index, absl::StatusOr<Gathered> gathered) GANGWAY_EXCLUDES(gather_mutex_);
  void Fill();
  absl::StatusOr<store::Content> MakeContent(const store::Slot& slot, Gathered& gathered);
  void GiveUp();
  const std::shared_ptr<store::Slot>& Result(size_t index) const;
  TransferKey Key(uint32_t shard) const { return {ordinal(), shard}; }

  device::Backend* const backend_;
  TransferPlane* const plane_;
  const Parts parts_;
  const TransferToken token_;
  std::vector<WorkerRef> peers_;  // of each receive
  Mutex gather_mutex_;
  // Moves, then receives; empty if there are no receives.
  std::vector<Gathered> gathered_ GANGWAY_GUARDED_BY(gather_mutex_);
  size_t gather_left_ GANGWAY_GUARDED_BY(gather_mutex_) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_
