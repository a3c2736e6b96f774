// What the members of a launch on one worker share: the plan, the devices of all positions, and whether the launch is
// aborted.
//
// Thread-safe.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_LAUNCH_H_
#define GANGWAY_COLLECTIVE_EXECUTION_LAUNCH_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/peer_devices.h"
#include "gangway/collective/execution/plan.h"

namespace gangway::collective {

// A gang, as its members on all workers name it.
struct GangName {
  // Its position in the order of releases: never 0, and larger than those of all gangs before it, on any worker.
  uint64_t order = 0;
  uint64_t ordinal = 0;  // for people
};

class Launch {
 public:
  // It is aborted when the way to one of its workers breaks.
  static std::shared_ptr<Launch> Begin(std::shared_ptr<const Plan> plan,
                                       std::shared_ptr<const PeerDevices> devices, GangName gang,
                                       std::chrono::milliseconds wait_max);

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const PeerDevices>& devices() const { return devices_; }
  const GangName& gang() const { return gang_; }
  std::chrono::milliseconds wait_max() const { return wait_max_; }
  bool needs_couriers() const { return !devices_->far_peers().empty(); }
  // Those that share memory with this worker, and its own.
  size_t members_of_host() const { return devices_->positions_of_host(); }
  // There are more of its members on workers that share memory than cores, or the system does not say how many: what
  // one of them waits for hardly comes while it looks.
  bool is_crowded() const { return is_crowded_; }
  // With the threads that tell their workers of the launch.
  bool is_crowded_at_first() const { return is_crowded_at_first_; }

  // Ends the collectives of its members here, those that wait and those to come. The first reason stays.
  void Abort(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  // All its members on this worker have ended well. From now on Abort does nothing, so their messages stay until they
  // are read. Errors: the reason of an earlier abort; DATA_LOSS: a peer is gone, so messages may be lost.
  absl::Status End() GANGWAY_EXCLUDES(mutex_);
  bool is_aborted() const { return is_aborted_->load(std::memory_order_acquire); }
  std::shared_ptr<const std::atomic<bool>> abort_flag() const { return is_aborted_; }
  absl::Status reason() const GANGWAY_EXCLUDES(mutex_);  // OK: not aborted

  // Notes an operand that all members could have read in place, were it in this worker's heap. At most 256 are kept.
  void NoteOutsideHeap(const std::byte* operand) GANGWAY_EXCLUDES(mutex_);
  std::vector<const std::byte*> outside_heap() const GANGWAY_EXCLUDES(mutex_);

 private:
  Launch(std::shared_ptr<const Plan> plan, std::shared_ptr<const PeerDevices> devices,
         GangName gang, std::chrono::milliseconds wait_max);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<const PeerDevices> devices_;
  const GangName gang_;
  const std::chrono::milliseconds wait_max_;
  const bool is_crowded_, is_crowded_at_first_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
  mutable Mutex mutex_;
  absl::Status reason_ GANGWAY_GUARDED_BY(mutex_);
  bool has_ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::vector<const std::byte*> outside_heap_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_LAUNCH_H_
