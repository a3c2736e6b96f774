// Implementation of control_plane.h.
#include "gangway/cli/control_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kStartLimit{5};

// Device ids come from the declared topology, never from the order of arrival.
std::vector<wire::Worker> DeclareWorkers(const ControlPlaneOptions& options) {
  std::vector<wire::Worker> workers;
  uint32_t device = 0;
  for (uint32_t island = 0; island < options.islands.size(); ++island) {
    for (uint32_t index = 0; index < options.islands[island].size(); ++index) {
      wire::Worker& worker = workers.emplace_back();
      worker.set_island(island);
      worker.set_index(index);
      for (uint32_t i = 0; i < options.islands[island][index]; ++i) worker.add_devices(device++);
    }
  }
  return workers;
}

uint64_t NewEpoch() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(WallClock::now().time_since_epoch())
          .count());
}

// Of a link whose question has been answered, and which is closing.
class AnsweredEndpoint final : public transport::Endpoint {
 public:
  void OnFrame(wire::Frame /*frame*/) override {}
  void OnClosed(const absl::Status& /*why*/) override {}
};

}  // namespace

ControlPlane::ControlPlane(const ControlPlaneOptions& options, transport::Transport* local,
                           transport::Transport* network)
    : options_(options), local_(local), network_(network) {}

ControlPlane::~ControlPlane() {
  local_listener_.reset();
  control_listener_.reset();
  loop_.Stop();
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ControlPlane::Start(
    const ControlPlaneOptions& options, transport::Transport* local,
    transport::Transport* network) {
  auto empty = [](const std::vector<uint32_t>& island) {
    return island.empty() || std::find(island.begin(), island.end(), 0u) != island.end();
  };
  if (options.islands.empty() ||
      std::any_of(options.islands.begin(), options.islands.end(), empty)) {
    return absl::InvalidArgumentError(
        "a cluster needs at least one island, each island a worker, and each worker a device");
  }
  std::unique_ptr<ControlPlane> plane(new ControlPlane(options, local, network));
  GANGWAY_RETURN_IF_ERROR(plane->StartController());
  GANGWAY_RETURN_IF_ERROR(plane->StartSchedulers());
  GANGWAY_RETURN_IF_ERROR(plane->Listen());
  return plane;
}

void ControlPlane::Drain(std::chrono::milliseconds limit) {
  auto drained = std::make_shared<Answer<bool>>();
  loop_.Post([this, drained] { controller_->DrainAll([drained] { drained->Set(true); }); });
  drained->WaitFor(limit);
}

absl::Status ControlPlane::StartController() {
  controller::ControllerOptions controller;
  controller.core.epoch = NewEpoch();
  controller.core.workers = DeclareWorkers(options_);
  controller.core.own_collectives = options_.own_collectives;
  controller.core.isolates = options_.isolates;
  controller.core.compiles.isolates = options_.isolates;
  controller.terms.set_isolated(options_.isolates);
  controller.core.scheduler_wait_max = options_.worker_wait_max;
  controller.core.blame.quarantine_time = options_.quarantine_time;
  for (const auto& [island, where] : options_.remote_schedulers)
    controller.core.remote_islands.insert(island);
  controller.data_key = transport::NewDataKey();
  controller.latency_request = options_.latency_request;
  controller.memory = options_.memory;
  controller.welcome_max = options_.welcome_max;
  controller.absent_max = options_.absent_max;
  controller.on_event = options_.on_event;
  controller.on_absent = options_.on_absent;
  controller.on_silent = options_.on_silent;
  controller.on_spare_wanted = options_.on_spare_wanted;
  controller.core.compiles.compilers = options_.compilers;
  controller.core.compiles.compile_max = options_.compile_limit;
  controller.terms.set_budget_bytes(options_.budget_bytes);
  controller.terms.set_memory_wait_ms(static_cast<uint64_t>(options_.memory_wait_max.count()));
  controller.terms.set_worker_wait_ms(static_cast<uint64_t>(options_.worker_wait_max.count()));
  controller.terms.set_late_after_ms(static_cast<uint64_t>(options_.late_after.count()));
  controller.terms.set_collective_limit_ms(
      static_cast<uint64_t>(options_.collective_limit.count()));
  controller.terms.set_orphan_limit_ms(static_cast<uint64_t>(options_.orphan_limit.count()));
  controller.terms.set_callback_hold_ms(static_cast<uint64_t>(options_.callback_hold_max.count()));
  controller_ = std::make_unique<controller::ControllerService>(&loop_, std::move(controller));
  auto welcome = [this](const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
    return controller_->Welcome(link, hello);
  };
  GANGWAY_ASSIGN_OR_RETURN(local_listener_,
                           local_->Listen(kLocalAddress, transport::Greet(&loop_, {}, welcome)));
  return absl::OkStatus();
}

absl::Status ControlPlane::StartSchedulers() {
  auto started = std::make_shared<Answer<bool>>();
  loop_.Post([this, started] {
    for (uint32_t island = 0; island < options_.islands.size(); ++island) StartScheduler(island);
    started->Set(true);
  });
  if (started->WaitFor(kStartLimit)) return absl::OkStatus();
  return absl::DeadlineExceededError("the head's event loop does not run");
}

// On the loop.
void ControlPlane::StartScheduler(uint32_t island) {
  schedulers_.emplace_back();
  if (options_.remote_schedulers.contains(island)) return;
  scheduler::SchedulerOptions scheduler;
  scheduler.island = island;
  scheduler.put_cost_max = options_.put_cost_max;
  scheduler.on_event = options_.on_event;
  scheduler.on_silent = options_.on_silent;
  schedulers_.back() =
      scheduler::SchedulerService::Host(&loop_, std::move(scheduler), controller_->Terms(island));
  controller_->Attach(island, schedulers_.back().get());
}

// One listener for all roles: workers go to their island's scheduler, the rest to the controller.
absl::Status ControlPlane::Listen() {
  GANGWAY_ASSIGN_OR_RETURN(
      control_listener_,
      network_->Listen(
          options_.control_address,
          transport::Greet(
              &loop_,
              {.token_needed = true,
               .verifiers = options_.token.empty() ? options_.verifiers
                                                   : transport::Verifiers::Same(options_.token),
               .memory = options_.memory},
              [this](const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
                return Welcome(link, hello);
              }),
          transport::kBatchLink));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<transport::Endpoint>> ControlPlane::Welcome(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  if (hello.role() != wire::ROLE_WORKER) return controller_->Welcome(link, hello);
  if (hello.has_declaration_request()) return TellDeclaration(link, hello.declaration_request());
  const uint32_t island = hello.worker().island();
  if (island >= schedulers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "island ", island, " is not declared; islands of the cluster: ", schedulers_.size()));
  }
  if (schedulers_[island]) return schedulers_[island]->Welcome(link, hello);
  return absl::FailedPreconditionError(absl::StrCat(
      "the workers of island ", island, " connect to its scheduler, which is a separate ",
      "process at ", options_.remote_schedulers.at(island), ": start this worker with the ",
      "cluster's current file"));
}

absl::StatusOr<std::unique_ptr<transport::Endpoint>> ControlPlane::TellDeclaration(
    const std::shared_ptr<transport::Link>& link, const wire::DeclarationRequest& request) {
  if (!options_.declare) {
    return absl::FailedPreconditionError(
        "this cluster starts its own workers, as `gangway up` does: it has no place for others");
  }
  wire::Frame reply;
  GANGWAY_ASSIGN_OR_RETURN(*reply.mutable_hello_reply()->mutable_declaration(),
                           options_.declare(request));
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  (void)link->Send(std::move(reply));  // the link closes either way
  link->Close(absl::CancelledError("the question was answered"));
  return std::make_unique<AnsweredEndpoint>();
}

}  // namespace gangway::cli
