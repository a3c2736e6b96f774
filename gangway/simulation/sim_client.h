// A session of the simulated cluster: a random program, sent as operations, and a model that
// predicts its outcome: the dataflow graph for the reference interpreter, and the storages that its
// handles refer to.
#ifndef GANGWAY_SIMULATION_SIM_CLIENT_H_
#define GANGWAY_SIMULATION_SIM_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/program/interpreter.h"
#include "gangway/program/program.h"
#include "gangway/simulation/checkers.h"
#include "gangway/simulation/sim_worker.h"
#include "gangway/simulation/timeline.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

struct ClientConfig {
  uint64_t session = 0;
  std::vector<std::vector<std::vector<uint32_t>>>
      placements;  // device lists that programs run on, grouped: per island, and across islands
  uint32_t live_arrays_max = 16;
  std::map<uint32_t, WorkerKey> worker_of;  // by device
  uint32_t withheld_percent = 0;            // of uploads: one shard is never sent
  bool certain = true;                      // only its own mistakes can fail
  bool mistakes = true;                     // it sometimes sends invalid operations
};

class SimClient {
 public:
  struct World {
    Timeline* timeline = nullptr;
    Random* random = nullptr;
    std::function<void(wire::SessionBatch)> send;
    // Sends one shard of an upload to this incarnation of the worker of `device`.
    std::function<void(uint64_t upload, uint32_t shard, uint32_t device, uint64_t value,
                       uint64_t incarnation)>
        send_shard;
    ResultChecker* results = nullptr;
    AnswerChecker* answers = nullptr;
  };

  SimClient(ClientConfig config, World world);

  // Sends about `op_count` operations over some virtual time.
  void StartPhase(int op_count);
  // From now on nothing is sent or expected.
  void End();
  bool ended() const { return ended_; }
  uint64_t session() const { return config_.session; }

  void OnEvents(const wire::SessionEvents& events);
  void OnFetched(uint64_t fetch, uint32_t shard, const Content& content);

  // The storages that its handles refer to, if nothing has failed but its own mistakes.
  struct Storage {
    std::vector<uint32_t> devices;
    uint32_t handles = 0;
    bool consumed = false;
  };
  const std::map<uint64_t, Storage>& storages() const { return storages_; }
  uint64_t ready_executable_count() const;

  const program::Program& program() const { return program_; }
  const std::vector<program::Array>& arguments() const { return arguments_; }

 private:
  struct Array {
    program::ValueId value = 0;
    std::vector<uint32_t> devices;
    uint32_t size = 0;               // elements of one shard
    std::vector<uint64_t> storages;  // of shard i
    bool bad = false;                // must be an error
  };
  struct Executable {
    wire::ExecutableInfo info;
    std::vector<uint32_t> devices;
    bool ready = false;
  };
  struct Fetch {
    uint32_t result = 0;        // index among the program's results
    std::set<uint32_t> shards;  // still to arrive
    bool answered = false;
  };
  struct UploadShard {
    uint64_t upload = 0;
    uint32_t shard = 0;
    uint32_t device = 0;
    uint64_t value = 0;
    wire::Destination to;
  };
  // A worker as last reported by the controller.
  struct Worker {
    uint64_t incarnation = 0;
    uint64_t previous = 0;
    bool up = false;
  };

  void Turn();
  void OneOp();
  void Compile();
  void Upload(const std::vector<uint32_t>& devices, uint32_t size);
  wire::Destination DestinationOf(uint32_t device) const;
  void SendShard(const UploadShard& shard);
  void OnUploadFailed(const wire::UploadFailed& failed);
  void OnWorkerState(const wire::WorkerState& state);
  void Call();
  std::optional<uint64_t> FindArgument(const Executable& executable);
  void Copy();
  void Regroup();
  void FetchSome();
  void AwaitSome();
  void DropSome(bool consume);
  void DropExecutable();
  void Mistake();
  void BadCall(uint64_t handle);

  wire::Op* NewOp() { return batch_.add_ops(); }
  uint64_t NewStorage(const std::vector<uint32_t>& devices);
  void AddArray(uint64_t handle, Array array);
  void AddBad(uint64_t handle);
  void Forget(uint64_t handle, bool consume);
  bool IsUsable(const Array& array) const;
  // Unless the client is `certain`, a call that would consume an array may have been rejected: then
  // the array is still usable.
  bool MustFail(const Array& array) const {
    return array.bad || (config_.certain && !IsUsable(array));
  }
  std::vector<uint64_t> Usable() const;  // handles
  const std::vector<uint32_t>& Placement();
  AnswerChecker::Outcome Allowed(bool must_fail) const;

  const ClientConfig config_;
  const World world_;
  bool ended_ = false;
  int ops_left_ = 0;
  uint64_t next_ = 1;  // handle, await, fetch, upload number
  uint64_t next_storage_ = 1;
  wire::SessionBatch batch_;
  std::map<uint64_t, Array> arrays_;
  std::map<uint64_t, Storage> storages_;
  std::map<uint64_t, Executable> executables_;
  std::map<uint64_t, Fetch> fetches_;
  std::map<WorkerKey, Worker> workers_;
  std::vector<UploadShard> held_shards_;  // for the next incarnation of a worker that is down
  std::set<uint64_t> withheld_uploads_;
  std::set<uint64_t> failed_uploads_;
  program::Program program_;
  uint32_t result_count_ = 0;
  std::vector<program::Array> arguments_;
};

// Evaluates simulated executables, and views ("view/0.1/1.0": shard 1 of input 0, shard 0 of
// input 1).
absl::StatusOr<std::vector<std::vector<std::string>>> EvaluateSimulated(
    const program::Node& call, const std::vector<const program::Array*>& inputs);

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_SIM_CLIENT_H_
