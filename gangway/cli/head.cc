// Implementation of head.h.
#include "gangway/cli/head.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/answer.h"
#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/status.h"
#include "gangway/cli/front_door.h"
#include "gangway/client/connect.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/frontdoor/ifrt/server.h"
#include "gangway/scheduler/service/scheduler_service.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/inproc/inproc.h"

namespace gangway::cli {
namespace {

constexpr char kControllerName[] = "controller"; // on the in-process transport
constexpr std::chrono::seconds kConnectLimit{5};
// So that the controller's answer, which names the absent workers, precedes the
// client's deadline.
constexpr std::chrono::seconds kWelcomeMargin{15};

// Device ids come from the declared topology, never from the order of arrival.
std::vector<wire::Worker> DeclareWorkers(const HeadOptions &options) {
  std::vector<wire::Worker> workers;
  uint32_t device = 0;
  for (uint32_t island = 0; island < options.islands.size(); ++island) {
    for (uint32_t index = 0; index < options.islands[island].size(); ++index) {
      wire::Worker &worker = workers.emplace_back();
      worker.set_island(island);
      worker.set_index(index);
      for (uint32_t i = 0; i < options.islands[island][index]; ++i)
        worker.add_devices(device++);
    }
  }
  return workers;
}

uint64_t NewEpoch() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(
          WallClock::now().time_since_epoch())
          .count());
}

class HeadImpl final : public Head {
public:
  explicit HeadImpl(const HeadOptions &options)
      : options_(options), loop_("head") {}

  ~HeadImpl() override {
    local_listener_.reset(); // a client that is being welcomed fails at once
    front_door_.reset();
    control_listener_.reset();
    loop_.Stop();
  }

  absl::Status Init() {
    inproc_ = transport::NewInprocTransport();
    GANGWAY_ASSIGN_OR_RETURN(
        network_,
        OpenTransport(options_.access.tls, options_.client_silence_max));
    GANGWAY_RETURN_IF_ERROR(StartController());
    GANGWAY_RETURN_IF_ERROR(StartSchedulers());
    GANGWAY_RETURN_IF_ERROR(Listen());
    ClientOptions client;
    client.controller_address = kControllerName;
    client.control = inproc_.get();
    client.data = network_.get();
    client.connect_limit = options_.welcome_max + kWelcomeMargin;
    GANGWAY_ASSIGN_OR_RETURN(
        front_door_,
        StartFrontDoor(options_.front_door_address, options_.access.token,
                       client,
                       {.client_silence_max = options_.client_silence_max,
                        .socket_path = options_.front_door_socket}));
    front_door_at_ = absl::StrCat("127.0.0.1:", front_door_->port());
    return absl::OkStatus();
  }

  const std::string &front_door_address() const override {
    return front_door_at_;
  }

  void Drain(std::chrono::milliseconds limit) override {
    auto drained = std::make_shared<Answer<bool>>();
    loop_.Post([this, drained] {
      controller_->DrainAll([drained] { drained->Set(true); });
    });
    drained->WaitFor(limit);
  }

private:
  absl::Status StartController() {
    controller::ControllerOptions controller;
    controller.core.epoch = NewEpoch();
    controller.core.workers = DeclareWorkers(options_);
    controller.core.scheduler_wait_max = options_.worker_wait_max;
    for (const auto &[island, where] : options_.remote_schedulers)
      controller.core.remote_islands.insert(island);
    controller.data_key = transport::NewDataKey();
    controller.welcome_max = options_.welcome_max;
    controller.on_event = options_.on_event;
    controller.on_silent = options_.on_silent;
    controller.terms.set_budget_bytes(options_.budget_bytes);
    controller.terms.set_memory_wait_ms(
        static_cast<uint64_t>(options_.memory_wait_max.count()));
    controller.terms.set_worker_wait_ms(
        static_cast<uint64_t>(options_.worker_wait_max.count()));
    controller_ = std::make_unique<controller::ControllerService>(
        &loop_, std::move(controller));
    auto welcome = [this](const std::shared_ptr<transport::Link> &link,
                          const wire::Hello &hello) {
      return controller_->Welcome(link, hello);
    };
    GANGWAY_ASSIGN_OR_RETURN(
        local_listener_,
        inproc_->Listen(kControllerName,
                        transport::Greet(&loop_, {}, welcome)));
    return absl::OkStatus();
  }

  absl::Status StartSchedulers() {
    for (uint32_t island = 0; island < options_.islands.size(); ++island) {
      schedulers_.emplace_back();
      if (options_.remote_schedulers.contains(island))
        continue;
      scheduler::SchedulerOptions scheduler;
      scheduler.island = island;
      scheduler.on_event = options_.on_event;
      scheduler.on_silent = options_.on_silent;
      GANGWAY_ASSIGN_OR_RETURN(schedulers_.back(),
                               scheduler::SchedulerService::Connect(
                                   &loop_, std::move(scheduler), *inproc_,
                                   kControllerName, kConnectLimit));
    }
    return absl::OkStatus();
  }

  // One listener for all roles: workers go to their island's scheduler, the
  // rest to the controller.
  absl::Status Listen() {
    auto welcome = [this](const std::shared_ptr<transport::Link> &link,
                          const wire::Hello &hello)
        -> absl::StatusOr<std::unique_ptr<transport::Endpoint>> {
      if (hello.role() != wire::ROLE_WORKER)
        return controller_->Welcome(link, hello);
      uint32_t island = hello.worker().island();
      if (island >= schedulers_.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "island ", island,
            " is not declared; islands of the cluster: ", schedulers_.size()));
      }
      if (schedulers_[island])
        return schedulers_[island]->Welcome(link, hello);
      return absl::FailedPreconditionError(absl::StrCat(
          "the workers of island ", island,
          " connect to its scheduler, which is a separate ", "process at ",
          options_.remote_schedulers.at(island),
          ": start this worker with the ", "cluster's current file"));
    };
    GANGWAY_ASSIGN_OR_RETURN(
        control_listener_,
        network_->Listen(options_.control_address,
                         transport::Greet(&loop_,
                                          {.token_needed = true,
                                           .token = options_.access.token},
                                          welcome)));
    return absl::OkStatus();
  }

  const HeadOptions options_;
  // Declared first, so that they outlive all members that use them.
  std::unique_ptr<transport::Transport> inproc_;
  std::unique_ptr<transport::Transport> network_;
  EventLoop loop_;
  std::vector<std::unique_ptr<scheduler::SchedulerService>>
      schedulers_; // null: elsewhere
  std::unique_ptr<controller::ControllerService> controller_;
  std::unique_ptr<transport::Listener> local_listener_;
  std::unique_ptr<transport::Listener> control_listener_;
  std::unique_ptr<ifrt::IfrtServer> front_door_;
  std::string front_door_at_;
};

} // namespace

absl::StatusOr<std::unique_ptr<Head>> Head::Start(const HeadOptions &options) {
  auto empty = [](const std::vector<uint32_t> &island) {
    return island.empty() ||
           std::find(island.begin(), island.end(), 0u) != island.end();
  };
  if (options.islands.empty() ||
      std::any_of(options.islands.begin(), options.islands.end(), empty)) {
    return absl::InvalidArgumentError(
        "a cluster needs at least one island, each island a worker, and each "
        "worker a device");
  }
  auto head = std::make_unique<HeadImpl>(options);
  GANGWAY_RETURN_IF_ERROR(head->Init());
  return head;
}

} // namespace gangway::cli
