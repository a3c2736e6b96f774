// Implementation of head.h.
#include "gangway/cli/head.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/host_memory.h"
#include "gangway/base/status.h"
#include "gangway/cli/front_door.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/client/connect.h"
#include "gangway/frontdoor/ifrt/server.h"
#include "gangway/transport/inproc/inproc.h"

namespace gangway::cli {
namespace {

// So that the controller's answer, which names the absent workers, precedes the client's deadline.
constexpr std::chrono::seconds kWelcomeMargin{15};

HeadOptions WithMemory(HeadOptions options) {
  options.memory = std::make_shared<MemoryBudget>(
      "the head", "--head-memory", PlanHead(HostMemoryBytes(), options.memory_bytes));
  return options;
}

class HeadImpl final : public Head {
 public:
  explicit HeadImpl(const HeadOptions& options) : options_(WithMemory(options)) {}

  ~HeadImpl() override {
    if (plane_ != nullptr) plane_->CloseLocal();  // a client that is being welcomed fails at once
    front_door_.reset();
  }

  absl::Status Init() {
    inproc_ = transport::NewInprocTransport();
    GANGWAY_ASSIGN_OR_RETURN(network_,
                             OpenTransport(options_.access.tls, options_.client_silence_max));
    GANGWAY_ASSIGN_OR_RETURN(plane_, ControlPlane::Start(options_, inproc_.get(), network_.get()));
    ClientOptions client;
    client.controller_address = ControlPlane::kLocalAddress;
    client.control = inproc_.get();
    client.data = network_.get();
    client.connect_limit = options_.welcome_max + kWelcomeMargin;
    client.controller_silence_max = std::chrono::milliseconds(0);  // it is in this process
    GANGWAY_ASSIGN_OR_RETURN(front_door_,
                             StartFrontDoor(options_.front_door_address, options_.verifiers, client,
                                            {.memory = options_.memory,
                                             .client_silence_max = options_.client_silence_max,
                                             .socket_path = options_.front_door_socket}));
    front_door_at_ = absl::StrCat("127.0.0.1:", front_door_->port());
    return absl::OkStatus();
  }

  const std::string& front_door_address() const override { return front_door_at_; }
  const std::string& control_address() const override { return plane_->control_address(); }

  void Drain(std::chrono::milliseconds limit) override { plane_->Drain(limit); }

 private:
  const HeadOptions options_;
  // Declared first, so that they outlive all members that use them.
  std::unique_ptr<transport::Transport> inproc_;
  std::unique_ptr<transport::Transport> network_;
  std::unique_ptr<ControlPlane> plane_;
  std::unique_ptr<ifrt::IfrtServer> front_door_;
  std::string front_door_at_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Head>> Head::Start(const HeadOptions& options) {
  auto head = std::make_unique<HeadImpl>(options);
  GANGWAY_RETURN_IF_ERROR(head->Init());
  return head;
}

}  // namespace gangway::cli
