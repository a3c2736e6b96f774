// What each device does for a gang with collectives of Gangway's own, as its worker has said in its last heartbeat.
// Workers name only gangs that take more than a second. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_MEMBERS_H_
#define GANGWAY_SCHEDULER_CORE_MEMBERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

struct Member {
  IslandDevice device;
  Ordinal gang;
  wire::GangMember::Stage stage = wire::GangMember::STAGE_UNKNOWN;
  Time since;  // of a member in a collective
  std::string collective;
  std::optional<IslandDevice> awaited;
  std::string client;  // whose host callback it waits for
};

class Members {
 public:
  explicit Members(const Fleet& fleet) : fleet_(fleet), members_(fleet.worker_count()) {}

  // Replaces all that the worker has said. Members on devices that it does not have are left out.
  void Set(uint32_t worker, const wire::Heartbeat& beat, Time now);
  void Clear(uint32_t worker) { members_[worker].clear(); }

  const std::vector<Member>& On(uint32_t worker) const { return members_[worker]; }
  const Member* Find(const NodeState& gang, IslandDevice device) const;  // null: nothing is known
  wire::GangMember::Stage StageOf(const NodeState& gang, IslandDevice device) const;
  // Whether the node has not ended on the device.
  bool IsOpenOn(const NodeState& node, IslandDevice device) const;

 private:
  const Fleet& fleet_;
  std::vector<std::vector<Member>> members_;  // by worker
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_MEMBERS_H_
