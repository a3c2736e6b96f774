// The devices of this worker, and the other workers of its island as the scheduler has described them.
//
// The island begins an epoch whenever one of its workers starts or ends. What is said of another worker in an earlier
// epoch than the latest one known is out of date, and changes nothing. Not thread-safe.
#ifndef GANGWAY_WORKER_CORE_FLEET_H_
#define GANGWAY_WORKER_CORE_FLEET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"

namespace gangway::worker {

// Which of the positions 0 to count - 1 of a program, or shards of an array, are on this worker. What a worker does
// for a launch is in proportion to these, whatever the count is.
struct LocalPositions {
  struct Position {
    uint32_t number = 0;
    int device = 0;
  };
  size_t count = 0;
  std::vector<Position> local;  // by number
};

class Fleet {
 public:
  explicit Fleet(int device_count) : device_count_(device_count) {}

  // The latest of the island that is known.
  uint64_t epoch() const { return epoch_; }
  // False: it is an earlier one.
  bool BeginEpoch(uint64_t epoch);

  // Names this worker's devices. Ids beyond its number of devices are ignored.
  void Open(const wire::OpenDevices& open);
  // Takes the description of another worker, which replaces an earlier one of the same devices. Incarnation 0: it is
  // down. Null: the description is out of date.
  WorkerRef UpdatePeer(wire::Worker& other);

  LocalPositions PositionsOf(const google::protobuf::RepeatedField<uint32_t>& devices) const;
  // For error texts. `local`: -1 if the device is not this worker's.
  std::string DeviceName(int local) const;

  // The workers of these devices, as far as they are known and are not this one. Each is named once for devices that
  // follow one another.
  std::vector<WorkerRef> MembersOn(const std::vector<DeviceId>& devices) const;
  // The worker of each of the devices. Null: it is down, or not known.
  std::vector<WorkerRef> SendersOn(const std::vector<DeviceId>& devices) const;

 private:
  WorkerRef WorkerOf(DeviceId device) const;  // null: it is not known

  const int device_count_;
  std::map<DeviceId, int> local_devices_;  // local index
  uint64_t epoch_ = 0;
  std::unordered_map<DeviceId, WorkerRef> others_;  // by each of their devices
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_FLEET_H_
