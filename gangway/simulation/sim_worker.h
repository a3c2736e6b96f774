// A worker of the simulated cluster: a queue per device in the order of the releases, virtual
// execution time, outputs that are hashes of the inputs, copies to other workers of any island. It
// speaks the wire messages of a real worker, and supports more than a real worker does today: gangs
// over several workers and islands. Half of the executables are collectives, whose members meet
// before they run. When a gang fails on one worker, a Cancel ends it on the others.
//
// Transfers: the receiving half, once released, takes shards only from the incarnations that its
// Peers name. Here the sending half offers each shard until it is taken, in place of a real
// worker's request; the acknowledgement ends the sending half. A Cancel of a released copy ends its
// waits for the other side.
#ifndef GANGWAY_SIMULATION_SIM_WORKER_H_
#define GANGWAY_SIMULATION_SIM_WORKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/simulation/checkers.h"
#include "gangway/simulation/meeting.h"
#include "gangway/simulation/timeline.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

// One shard: the hash that stands for its bytes, or the reason why it has none.
struct Content {
  uint64_t value = 0;
  std::optional<wire::Failure> failure;
};

std::string ContentBytes(uint64_t value);

// Shard `position` of result `result` of an executable, from the same shard of its arguments.
uint64_t ExecuteShard(const std::string& executable, uint32_t result,
                      const std::vector<uint64_t>& arguments);

class SimWorker {
 public:
  // The worker's environment. Its functions are called inline and do not call back into the worker.
  struct World {
    Timeline* timeline = nullptr;
    Random* random = nullptr;
    std::function<void(wire::Report)> report;
    std::function<void(uint64_t session, uint64_t fetch, uint32_t shard, Content)> send_fetched;
    // Offers a shard to the worker of `device`; `taken` is called later if that worker took it.
    std::function<void(uint32_t device, uint64_t ordinal, uint32_t shard, Content,
                       uint64_t incarnation, std::function<void()> taken)>
        offer;
    OrderChecker* order = nullptr;
    ReferenceChecker* references = nullptr;
    MemoryChecker* memory = nullptr;
    Meeting* meeting = nullptr;
    uint32_t failing_percent = 0;  // of launches, and of loads
  };

  SimWorker(WorkerKey key, std::vector<uint32_t> devices, World world);

  void Start(uint64_t incarnation);
  void Die();
  bool up() const { return incarnation_ != 0; }
  uint64_t incarnation() const { return incarnation_; }
  WorkerKey key() const { return key_; }
  const std::vector<uint32_t>& devices() const { return devices_; }

  void OnBatch(const wire::IslandBatch& batch);
  void Stage(uint64_t session, uint64_t upload, uint32_t shard, uint64_t value);
  // `incarnation`: of the worker that offers the shard. False: the node is unknown, unreleased or
  // ended here, or its Peers name another sender.
  bool TakeOffer(uint64_t ordinal, uint32_t shard, const Content& content, uint64_t incarnation);

  std::vector<std::pair<uint64_t, uint64_t>> HeldStorages() const;  // storage, session
  size_t node_count() const { return nodes_.size(); }
  size_t executable_count() const { return executables_.size(); }
  size_t staged_count() const { return staged_.size(); }
  int64_t used_bytes() const;

 private:
  struct Storage {
    uint64_t session = 0;
    uint64_t shard_bytes = 0;
    std::map<uint32_t, uint32_t> devices;  // shard -> global device, local ones
    std::map<uint32_t, uint64_t> content;  // shard -> value
    std::set<uint32_t> charged;            // devices that hold its bytes
    std::optional<wire::Failure> failure;
  };
  struct Node {
    wire::Node message;
    std::shared_ptr<const wire::Load> load;  // launch: outlives an Unload
    bool released = false;
    std::optional<wire::Failure> failure;
    std::vector<uint64_t> outputs;                           // storages
    std::map<std::pair<uint64_t, uint32_t>, uint64_t> made;  // storage, shard -> value
    std::set<uint32_t> open;    // launch: positions; copy: shards to receive; fetch: parts to send
    std::set<uint32_t> unsent;  // copy: shards not offered yet
    std::set<uint32_t> unacknowledged;  // copy: shards offered, not acknowledged
    std::set<uint32_t> meeting;  // launch: positions that wait for the other members of the gang
    std::map<uint32_t, uint64_t> peers;  // copy: incarnation of the sender, by device
  };
  struct Device {
    std::deque<std::pair<uint64_t, uint32_t>> queue;  // ordinal, position
    bool busy = false;
    int64_t used_bytes = 0;
  };

  // Runs `what` after `delay`, unless the worker has died by then.
  void Later(Duration delay, std::function<void()> what);
  bool IsLocal(uint32_t device) const { return device_states_.count(device) != 0; }

  void OnItem(const wire::IslandItem& item);
  void OnNode(const wire::Node& message);
  void AddInputs(const wire::ArrayRef& ref,
                 const google::protobuf::RepeatedField<uint32_t>& devices,
                 std::set<uint64_t>& inputs) const;
  void AddOutput(Node& node, uint64_t storage,
                 const google::protobuf::RepeatedField<uint32_t>& devices, uint64_t shard_bytes);
  void OnRelease(uint64_t ordinal);
  void OnPeers(const wire::Peers& peers);
  void CheckPeers(Node& node);
  void OnCancel(uint64_t ordinal, const wire::Failure& failure);
  void OnFree(uint64_t storage);
  void OnEndSession(uint64_t session);

  // Starts everything that can start.
  void Pump();
  void PumpDevice(uint32_t device);
  void StartPosition(uint32_t device, Node& node, uint32_t position,
                     const std::vector<uint64_t>& arguments);
  void RunPosition(uint32_t device, uint64_t ordinal, uint32_t position,
                   const std::vector<uint64_t>& arguments);
  void Fail(uint64_t ordinal, Node& node, const wire::Failure& failure);
  void EndPosition(uint32_t device, uint64_t ordinal, uint32_t position);
  void PumpCopy(uint64_t ordinal, Node& node);
  void Offer(uint64_t ordinal, uint32_t device, uint32_t shard, const Content& content);
  void Receive(Node& node, uint32_t shard, const Content& content);
  void PumpFetch(uint64_t ordinal, Node& node);
  void PumpUpload(uint64_t ordinal, Node& node);
  bool IsOver(const Node& node) const;
  void EndIfOver(uint64_t ordinal);
  void End(uint64_t ordinal);

  // The shard at `position` of an argument; nullopt: not made yet.
  std::optional<Content> Read(const wire::ArrayRef& ref, uint32_t position) const;
  void Use(uint32_t device, int64_t bytes);
  void Discharge(Storage& storage);
  uint64_t AliasBytes(const Node& node) const;

  const WorkerKey key_;
  const std::vector<uint32_t> devices_;
  const World world_;
  uint64_t incarnation_ = 0;
  std::map<uint32_t, Device> device_states_;
  std::map<uint64_t, Storage> storages_;
  std::map<uint64_t, Node> nodes_;
  std::map<uint64_t, std::shared_ptr<const wire::Load>> executables_;
  std::map<uint64_t, wire::Failure> load_failures_;
  std::map<std::pair<uint64_t, uint64_t>, std::map<uint32_t, uint64_t>>
      staged_;  // session, upload -> shards
  std::set<uint64_t> ended_sessions_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_SIM_WORKER_H_
