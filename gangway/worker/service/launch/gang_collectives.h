// What a gang with collectives of Gangway's own keeps on this worker: its devices here, where its other members run,
// and the launch that its members here share. The first member that joins makes the launch, once the other workers are
// known. An abort ends the waits of all members here; its reason is then how each of them ends.
//
// Threading: any thread. The event loop sets the order position and enters the gang before any member joins. Join waits
// for other workers; nothing else blocks.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_GANG_COLLECTIVES_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_GANG_COLLECTIVES_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/launch.h"
#include "gangway/collective/execution/local_device.h"
#include "gangway/device/device.h"
#include "gangway/worker/service/collective/pending_peers.h"
#include "gangway/worker/service/launch/executable_slot.h"

namespace gangway::worker {

class GangCollectives {
 public:
  struct Parts {
    std::shared_ptr<PendingPeers> peers;  // null: the gang has no collectives of Gangway's own
    std::vector<std::shared_ptr<collective::LocalDevice>>
        devices;  // by position; null: none could be made
  };
  struct Gang {
    Ordinal ordinal;
    uint32_t launch_id = 0;
    std::chrono::milliseconds wait_limit{};  // of a member, for another one
  };
  // `executable` outlives this. `parts` has peers.
  GangCollectives(Parts parts, const ExecutableSlot& executable, Gang gang);

  // All workers of the island run these gangs in one order.
  void SetOrderPosition(OrderPosition position) { order_position_ = position; }
  // Its members are queued on their devices.
  void Enter() const;
  // Instead: no gang runs here at this position in the order.
  void Skip(OrderPosition position) const;

  // What a member is to its device: the number of its position, and the device's local index and id.
  struct Seat {
    uint32_t number = 0;
    int device = 0;
    DeviceId device_id;
  };
  // How a runtime without FFI handlers calls the member's collectives; empty: `handlers` find the member. Errors: those
  // of PendingPeers::Wait, which asks `unwanted` for the gang's failure.
  absl::StatusOr<device::CollectiveCall> Join(size_t member, const Seat& seat,
                                              device::Capabilities::FfiHandlers handlers,
                                              Clock::time_point deadline,
                                              absl::FunctionRef<absl::Status()> unwanted)
      GANGWAY_EXCLUDES(mutex_);
  // The end of a member whose execution ended with `status`; the reason of the launch's abort takes precedence.
  absl::Status EndOf(const absl::Status& status) GANGWAY_EXCLUDES(mutex_);
  // Once for each member, also for one that did not join.
  void Leave(size_t member, int device, const absl::Status& status) const;

  // Ends the waits of its members. The first reason stays.
  void Abort(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // Operands that members on other workers could not read in place (borrowed_memory.h).
  std::vector<const std::byte*> OutsideHeap() const GANGWAY_EXCLUDES(mutex_);

  // The scheduler knows that the gang has failed. It is told of the first failure here, unless it named one before:
  // TakeReport is true once.
  void NoteReported() { is_reported_ = true; }
  [[nodiscard]] bool TakeReport() { return !is_reported_.exchange(true); }

 private:
  // The launch, made by the first member that asks.
  absl::StatusOr<std::shared_ptr<collective::Launch>> LaunchOf(
      Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted)
      GANGWAY_EXCLUDES(mutex_);

  const Parts parts_;
  const ExecutableSlot& executable_;
  const Gang gang_;
  OrderPosition order_position_;
  std::atomic<bool> is_reported_ = false;
  mutable Mutex mutex_;
  std::shared_ptr<collective::Launch> launch_ GANGWAY_GUARDED_BY(mutex_);  // null: no member joined
  size_t ended_well_ GANGWAY_GUARDED_BY(mutex_) = 0;                       // members
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_GANG_COLLECTIVES_H_
