// The workers of an island and their devices: which devices each worker has, by the declared topology, and which
// process is the worker's at present. Every start and every end of a process begins a new epoch of the island.
//
// Indices of workers and devices must be in range, except where a method says that it checks them. Pure data; not
// thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_FLEET_H_
#define GANGWAY_SCHEDULER_CORE_FLEET_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Fleet {
 public:
  // A device whose runtime has not returned from a gang, as its worker says.
  struct Stuck {
    DeviceId device;
    Ordinal gang;
    Time since;
  };

  Fleet(uint32_t island, const std::vector<WorkerSpec>& workers);

  // --- The topology, which never changes ---

  uint32_t island() const { return island_; }
  uint32_t worker_count() const { return static_cast<uint32_t>(workers_.size()); }
  size_t device_count() const { return devices_.size(); }
  std::optional<IslandDevice> Find(DeviceId id) const;  // nullopt: a device of another island
  DeviceId IdOf(IslandDevice device) const { return devices_[device.number()].id; }
  uint32_t WorkerOf(IslandDevice device) const { return devices_[device.number()].worker; }
  const std::vector<DeviceId>& DevicesOf(uint32_t worker) const { return workers_[worker].devices; }
  // The devices of a worker follow one another.
  IslandDevice FirstDeviceOf(uint32_t worker) const { return workers_[worker].first_device; }
  // By its index on the worker. Checks both; nullopt: there is none.
  std::optional<IslandDevice> DeviceOf(uint32_t worker, uint32_t index) const;
  uint32_t IndexOnWorker(IslandDevice device) const;
  // Each worker once, in the order of their first devices.
  std::vector<uint32_t> WorkersOf(const std::vector<IslandDevice>& devices) const;
  // "island0/worker1", and the inverse, which checks the name.
  std::string NameOf(uint32_t worker) const;
  std::optional<uint32_t> FindName(std::string_view name) const;

  // --- The processes ---

  uint64_t epoch() const { return epoch_; }
  bool IsUp(uint32_t worker) const { return workers_[worker].incarnation != Incarnation(); }
  // Checks the index. False, too: the worker has another process now.
  bool IsUp(uint32_t worker, Incarnation incarnation) const;
  Incarnation IncarnationOf(uint32_t worker) const { return workers_[worker].incarnation; }
  // A process registers; the worker is down before. Until it speaks, none of its devices is stuck.
  void Start(const wire::WorkerRegistration& registration, uint64_t process_id);
  void Stop(uint32_t worker);
  const wire::WorkerRegistration& RegistrationOf(uint32_t worker) const {
    return workers_[worker].registration;
  }
  wire::Worker Describe(uint32_t worker) const;
  // What other workers need of it, in the island's present epoch. Incarnation 0: it is down.
  wire::Worker DescribeToWorkers(uint32_t worker) const;
  // Tells the controller that the worker is up, and which of its devices are stuck.
  wire::Report ReportUp(uint32_t worker) const;
  // Whether bytes that a client sent to a worker of this island have arrived at its process, or still may. The client
  // names the incarnation that it knew; `next`: it knew that one to be down, and sends to the next.
  bool MayGetBytes(const wire::Destination& to) const;

  // --- What workers say of themselves, and what is said to each of their processes ---

  const std::vector<Stuck>& StuckOf(uint32_t worker) const { return workers_[worker].stuck; }
  const Stuck* FindStuck(IslandDevice device) const;  // null: it is not
  // Returns those that were stuck before.
  std::vector<Stuck> SetStuck(uint32_t worker, std::vector<Stuck> stuck);
  const wire::DataBytes& DataBytesOf(uint32_t worker) const { return workers_[worker].data_bytes; }
  void SetDataBytes(uint32_t worker, const wire::DataBytes& data) {
    workers_[worker].data_bytes = data;
  }
  // Sessions whose data streams each process of the worker takes.
  const std::set<SessionId>& AdmittedTo(uint32_t worker) const { return workers_[worker].admitted; }
  void Admit(SessionId session, uint32_t worker) { workers_[worker].admitted.insert(session); }
  void EndSession(SessionId session);
  // Because of this gang. False: the process has been told already.
  bool NoteToldToEnd(uint32_t worker, Ordinal gang);
  std::optional<Ordinal> ToldToEndFor(uint32_t worker) const {
    return workers_[worker].told_to_end_for;
  }
  uint64_t ProcessOf(uint32_t worker) const { return workers_[worker].process_id; }

 private:
  struct Worker {
    std::vector<DeviceId> devices;
    IslandDevice first_device;
    Incarnation incarnation;    // 0 = down
    Incarnation latest;         // the current incarnation, or the last one
    Incarnation before_latest;  // 0 = none
    wire::WorkerRegistration registration;
    uint64_t process_id = 0;
    wire::DataBytes data_bytes;  // as last reported
    std::vector<Stuck> stuck;
    std::set<SessionId> admitted;
    std::optional<Ordinal> told_to_end_for;
  };
  struct Device {
    uint32_t worker = 0;
    DeviceId id;
  };

  const uint32_t island_;
  std::vector<Worker> workers_;
  std::vector<Device> devices_;  // by IslandDevice
  absl::flat_hash_map<DeviceId, IslandDevice> index_;
  uint64_t epoch_ = 0;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_FLEET_H_
