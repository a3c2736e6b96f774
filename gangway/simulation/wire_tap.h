// Reads what schedulers and workers say to each other on the simulated network, and tells the checkers: the order of
// releases (GS-1, GS-4), and what each worker holds and uses (OB-1).
#ifndef GANGWAY_SIMULATION_WIRE_TAP_H_
#define GANGWAY_SIMULATION_WIRE_TAP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/simulation/checkers.h"
#include "gangway/transport/sim/sim.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

class WireTap {
 public:
  // `islands`: device count of each worker.
  WireTap(Violations* violations, const std::vector<std::vector<uint32_t>>& islands);

  // SimNetworkOptions::on_send.
  void OnSend(const transport::SimNetwork::LinkState& link, bool to_server,
              const wire::Frame& frame);
  void Finish();  // once
  uint64_t released_count() const { return released_count_; }

 private:
  struct Worker {
    uint32_t island = 0;
    std::string life;
    std::set<uint32_t> devices;
  };

  void Begin(uint64_t epoch);
  void EndStep();
  void OnBatch(const Worker& worker, const wire::IslandBatch& batch);
  void OnNode(const Worker& worker, const wire::Node& node);
  void AddInputs(const Worker& worker, const wire::ArrayRef& ref,
                 const google::protobuf::RepeatedField<uint32_t>& devices,
                 std::set<ReferenceChecker::Shard>& shards) const;
  void AddOutput(const Worker& worker, uint64_t storage,
                 const google::protobuf::RepeatedField<uint32_t>& devices,
                 std::set<ReferenceChecker::Shard>& shards);

  Violations* const violations_;
  const std::map<uint32_t, uint32_t> island_of_;  // by device
  std::map<std::string, Worker> workers_;         // by name
  // Of one controller. The next one counts anew.
  uint64_t epoch_ = 0;
  std::map<uint32_t, OrderChecker> orders_;  // by island
  std::unique_ptr<ReleaseChecker> releases_;
  std::unique_ptr<ReferenceChecker> references_;
  std::map<uint64_t, wire::Load> loads_;                            // by executable
  std::map<uint64_t, std::set<ReferenceChecker::Shard>> consumed_;  // by ordinal
  // One step of a scheduler sends one message per worker, all at the same time.
  std::vector<std::pair<uint32_t, uint64_t>> step_;  // island, ordinal
  Clock::time_point step_at_{};
  uint64_t released_count_ = 0;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_WIRE_TAP_H_
