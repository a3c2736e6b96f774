// Copies the shards of one or several arrays: within this worker, to other workers, and from them. All arrays of a copy
// are on the same devices, so its work is by position: one shard of each array, from one device to one other.
//
// Local shards are copied on their source device's thread, so that the copies run after the programs that produce the
// shards and before those that consume them; a shard that stays in place shares the buffer. Outgoing shards are offered
// to the transfer plane, those of a position once they all exist, and are shared until the receiver has them (OB-1).
// Incoming shards are requested at once. If results have incoming shards, all their local shards are filled together,
// or fail together.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class CopyTask final : public NodeTask {
 public:
  using Slots = std::vector<std::shared_ptr<store::Slot>>;  // of one position, by array; not empty
  struct Move {
    Slots from;
    Slots to;
  };
  struct Send {
    Slots from;
    uint32_t position = 0;
    DeviceId to_device;
  };
  struct Receive {
    Slots to;
    uint32_t position = 0;
    DeviceId from_device;
  };
  struct Parts {
    std::vector<Move> moves;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    std::vector<device::ArraySpec>
        specs;  // of the results' shards, by array; if there are receives
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
  // What is to fill one position of results with incoming shards, by array.
  struct Gathered {
    std::vector<store::Content> contents;  // of a move
    std::vector<ShardBytes> received;      // of a receive
  };
  class Leaving;

  static size_t CountParts(const Parts& parts);
  void RunMove(size_t index);
  absl::StatusOr<std::vector<store::Content>> CopyOrShareAll(const Move& move);
  absl::StatusOr<store::Content> CopyOrShare(const store::Slot& to, store::Slot& from);
  void OfferShards(const Send& send);
  void OfferWhenReady(const TransferKey& key, const std::shared_ptr<Leaving>& leaving, size_t array,
                      store::Slot& from);
  // A shard that this worker holds has failed, and with it the copy.
  void FailSource(const TransferKey& key, int device, const absl::Status& why);
  void FailSend(int device, const absl::Status& why);
  void AskFor(size_t index);
  absl::StatusOr<std::vector<size_t>> Sizes() const;
  void Gather(size_t index, absl::StatusOr<Gathered> gathered) GANGWAY_EXCLUDES(gather_mutex_);
  void Fill();
  // Nothing after a failure, which is noted.
  std::vector<store::Content> MakeContents(const Slots& slots, Gathered& gathered);
  absl::StatusOr<store::Content> MakeContent(const store::Slot& slot, const device::ArraySpec& spec,
                                             const ShardBytes& received);
  void GiveUp();
  void CancelSends(const wire::Failure& why);
  void FailAll(const Slots& slots, const wire::Failure& why) const;
  void EndParts(size_t count);
  const Slots& Result(size_t index) const;
  TransferKey Key(uint32_t position) const { return {ordinal(), position}; }

  device::Backend* const backend_;
  TransferPlane* const plane_;
  const Parts parts_;
  const TransferToken token_;
  std::vector<WorkerRef> peers_;  // of each receive
  std::atomic<bool> gave_up_ = false;
  Mutex gather_mutex_;
  // Moves, then receives; empty if there are no receives.
  std::vector<Gathered> gathered_ GANGWAY_GUARDED_BY(gather_mutex_);
  size_t gather_left_ GANGWAY_GUARDED_BY(gather_mutex_) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_COPY_TASK_H_
