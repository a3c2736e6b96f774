// The control plane: the controller and the schedulers of its islands (except those that are separate processes), which
// call each other. Workers, the compiler, tools and clients connect to the control address, over transports that are
// given.
//
// Threading: one event loop runs all of it. Start and the destructor are called from one thread, which is not that
// loop's.
#ifndef GANGWAY_CLI_CONTROL_PLANE_H_
#define GANGWAY_CLI_CONTROL_PLANE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/memory_budget.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/scheduler/service/scheduler_service.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/put_limits.h"

namespace gangway::cli {

struct ControlPlaneOptions {
  std::vector<std::vector<uint32_t>> islands;         // device count of each worker
  std::map<uint32_t, std::string> remote_schedulers;  // island -> address of a separate scheduler
  // What a process that asks for a worker is told; null: nothing, since all workers are told by who starts them.
  std::function<absl::StatusOr<wire::WorkerDeclaration>(const wire::DeclarationRequest&)> declare;
  uint64_t budget_bytes = 0;                        // per device; 0 = no limit
  uint64_t put_cost_max = wire::kPutWorkerCostMax;  // of the schedulers here, as in IslandConfig
  bool isolates = false;  // sessions of different owners share no worker and no compiler process
  bool own_collectives = false;  // Gangway's instead of the device runtime's, where both can
  bool latency_request = false;  // the cluster's processes hold it (base/latency_request.h)
  std::shared_ptr<MemoryBudget> memory;  // what the controller holds for clients; null: no limit
  transport::Verifiers verifiers;        // of the tokens that the roles present
  std::string token;            // instead, one token for all roles: for a cluster of one process
  std::string control_address;  // in the form of the network's transport
  std::chrono::milliseconds welcome_max{
      15000};  // a new session, for a worker; after the start, for all
  std::chrono::milliseconds absent_max{2000};  // a new session, for workers that were up before
  std::chrono::milliseconds worker_wait_max{20000};  // work, for a worker that is down
  std::chrono::milliseconds memory_wait_max{30000};
  std::chrono::milliseconds late_after{5000};  // members in a collective: the absent are logged
  std::chrono::milliseconds collective_limit{300000};  // likewise: their gang is aborted
  uint32_t compilers = 1;                              // at most this many processes
  std::chrono::milliseconds compile_limit{600000};     // of one program
  std::chrono::milliseconds orphan_limit{10000};       // of an ended session's work, on a device
  // In which a session's host callbacks hold a device that others wait for.
  std::chrono::milliseconds callback_hold_max{120000};
  std::chrono::milliseconds quarantine_time{600000};   // of programs that end workers; 0: none
  std::function<void(uint64_t process_id)> on_silent;  // a process declared dead for its silence
  std::function<void(uint32_t compiler)> on_spare_wanted;  // its process is to be started
  std::function<void(const std::string&)> on_event;        // for people, one line each; on the loop
  // The declared processes that are down: first of Start, then on the loop at each change; last an empty text, once all
  // have come up.
  std::function<void(const std::string&)> on_absent;
};

class ControlPlane {
 public:
  // The controller's address on the local transport, for clients of this process: they need no token.
  static constexpr char kLocalAddress[] = "controller";

  // `local`: of this process alone. Both transports are not owned and outlive the result. INVALID_ARGUMENT: a malformed
  // address, one beyond loopback without TLS (SE-1), or no devices. UNAVAILABLE: the address is in use.
  static absl::StatusOr<std::unique_ptr<ControlPlane>> Start(const ControlPlaneOptions& options,
                                                             transport::Transport* local,
                                                             transport::Transport* network);
  ~ControlPlane();  // ends sessions, closes links, joins the loop

  // A client that is being welcomed over the local transport fails at once, and no other is accepted.
  void CloseLocal() { local_listener_.reset(); }

  // Rejects new work and waits up to `limit` until none is left. Call it before the destructor.
  void Drain(std::chrono::milliseconds limit);

  // Where it listens, with the real port.
  const std::string& control_address() const { return control_listener_->address(); }

 private:
  ControlPlane(const ControlPlaneOptions& options, transport::Transport* local,
               transport::Transport* network);
  absl::Status StartController();
  absl::Status StartSchedulers();
  void StartScheduler(uint32_t island);
  absl::Status Listen();
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> Welcome(
      const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> TellDeclaration(
      const std::shared_ptr<transport::Link>& link, const wire::DeclarationRequest& request);

  const ControlPlaneOptions options_;
  transport::Transport* const local_;
  transport::Transport* const network_;
  EventLoop loop_{"head"};
  std::vector<std::unique_ptr<scheduler::SchedulerService>> schedulers_;  // null: elsewhere
  std::unique_ptr<controller::ControllerService> controller_;
  std::unique_ptr<transport::Listener> local_listener_;
  std::unique_ptr<transport::Listener> control_listener_;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CONTROL_PLANE_H_
