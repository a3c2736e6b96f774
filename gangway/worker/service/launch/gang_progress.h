// How far each member of a gang with collectives of Gangway's own has come on this worker, for the heartbeats
// (running_gangs.h). Of other gangs nothing is recorded, so it has no members.
//
// Threading: one thread at a time records for a member, and any thread looks.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_GANG_PROGRESS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_GANG_PROGRESS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/device/in_flight.h"

namespace gangway::worker {

class GangProgress {
 public:
  using Stage = wire::GangMember::Stage;

  explicit GangProgress(size_t members) : members_(members) {}

  size_t size() const { return members_.size(); }
  void Set(size_t member, Stage stage) {
    if (!members_.empty()) members_[member].stage = stage;
  }
  // The device runtime is called now, and may run the whole program inside the call. The member's execute has begun
  // among `executes`, those of its device.
  void NoteCall(size_t member, const InFlight& executes) {
    if (members_.empty()) return;
    members_[member].begun_before = executes.begun() - 1;
    members_[member].stage = wire::GangMember::STAGE_CALL;
  }
  void NoteReturn(size_t member) {
    if (members_.empty()) return;
    Stage called = wire::GangMember::STAGE_CALL;  // else it has ended already
    members_[member].stage.compare_exchange_strong(called, wire::GangMember::STAGE_ENQUEUED);
  }

  // An enqueued member runs once all executes that began before it on its device have ended.
  Stage Look(size_t member, const InFlight& executes) const {
    const Stage stage = members_[member].stage;
    const bool is_first = executes.ended() >= members_[member].begun_before;
    return stage == wire::GangMember::STAGE_ENQUEUED && is_first ? wire::GangMember::STAGE_RUNNING
                                                                 : stage;
  }

 private:
  struct Member {
    std::atomic<Stage> stage = wire::GangMember::STAGE_QUEUED;
    std::atomic<uint64_t> begun_before = 0;  // executes of its device, at the call
  };
  std::vector<Member> members_;  // by position
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_GANG_PROGRESS_H_
