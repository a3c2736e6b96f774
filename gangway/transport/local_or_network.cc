// Implementation of local_or_network.h.
#include "gangway/transport/local_or_network.h"

#include <string>
#include <utility>

#include "gangway/transport/local/local.h"

namespace gangway::transport {
namespace {

class Split final : public Transport {
 public:
  Split(std::unique_ptr<Transport> local, std::unique_ptr<Transport> network)
      : local_(std::move(local)), network_(std::move(network)) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    return For(address).Listen(address, std::move(accept), options);
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    return For(address).Connect(address, std::move(events), limit, options);
  }

 private:
  Transport& For(const std::string& address) {
    return IsLocalAddress(address) ? *local_ : *network_;
  }

  const std::unique_ptr<Transport> local_;
  const std::unique_ptr<Transport> network_;
};

}  // namespace

std::unique_ptr<Transport> LocalOrNetwork(std::unique_ptr<Transport> network) {
  return std::make_unique<Split>(NewLocalTransport(), std::move(network));
}

}  // namespace gangway::transport
