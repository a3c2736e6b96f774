// Runs the conformance suite on the simulated network in real time, and tests its faults.
#include "gangway/transport/sim/sim.h"

#include "gangway/transport/conformance/conformance.h"

namespace gangway::transport {
namespace {

// A process with a network of its own.
class Alone final : public Transport {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    return process_->Listen(address, std::move(accept), options);
  }
  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                std::chrono::milliseconds limit,
                                                LinkOptions options) override {
    return process_->Connect(address, std::move(events), limit, options);
  }

 private:
  SimNetwork network_;
  std::unique_ptr<Transport> process_ = network_.Join("alone");
};

INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance,
                         ::testing::Values(Implementation{
                             "sim", [] { return std::make_unique<Alone>(); }, "here:0", "nobody"}));

}  // namespace
}  // namespace gangway::transport
