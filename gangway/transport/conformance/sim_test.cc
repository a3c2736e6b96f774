// Runs the conformance suite on the simulated network in real time, and tests its faults.
#include "gangway/transport/sim/sim.h"

#include <gmock/gmock.h>

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

const Implementation kSim{"sim", [] { return std::make_unique<Alone>(); }, "here:0",
                          "an address without a listener"};

INSTANTIATE_TEST_SUITE_P(Sim, TransportAddresses, ::testing::Values(kSim));
INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance, ::testing::Values(kSim));

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class SimNetworkTest : public ::testing::Test {
 protected:
  SimNetworkTest() : network_({.silence_max = milliseconds(300)}) {
    here_ = network_.Join("here");
    there_ = network_.Join("there");
    listener_ = *there_->Listen("there:0", [this](std::shared_ptr<Link> link) {
      server_.link = std::move(link);
      return server_.Events();
    });
    link_ = *here_->Connect(listener_->address(), client_.Events(), milliseconds(5000));
    id_ = network_.Links().at(0).id;
  }
  ~SimNetworkTest() override {
    link_.reset();
    server_.link.reset();
    listener_.reset();
    client_loop_.Stop();
    server_loop_.Stop();
  }
  static wire::Frame Numbered(uint64_t number) {
    wire::Frame frame;
    frame.set_sequence(number);
    return frame;
  }

  // Outlive the network, which may still post to them.
  EventLoop client_loop_{"client"}, server_loop_{"server"};
  End client_{&client_loop_}, second_{&client_loop_}, server_{&server_loop_};
  SimNetwork network_;
  std::unique_ptr<Transport> here_, there_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Link> link_;
  uint64_t id_ = 0;
};

TEST_F(SimNetworkTest, AResetIsSeenByBothEnds) {
  EXPECT_EQ(network_.Links().at(0).server, "there");
  network_.Reset(id_);
  ASSERT_TRUE(client_.WaitClosed() && server_.WaitClosed());
  EXPECT_EQ(client_.closed().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(link_->Send(Numbered(1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(network_.Links().empty());
}

TEST_F(SimNetworkTest, ALinkThatIsSilentInOneDirectionCarriesTheOtherUntilItIsReset) {
  network_.Silence(id_, /*to_server=*/true, /*to_client=*/false);
  ASSERT_TRUE(link_->Send(Numbered(1)).ok());
  ASSERT_TRUE(server_.link->Send(Numbered(2)).ok());
  ASSERT_TRUE(client_.WaitFrames(1));
  ASSERT_TRUE(client_.WaitClosed() && server_.WaitClosed());
  EXPECT_TRUE(server_.frames().empty());
}

TEST_F(SimNetworkTest, WhatIsHeldArrivesWhenTheLinkIsRestored) {
  network_.Silence(id_, true, true);
  ASSERT_TRUE(link_->Send(Numbered(1)).ok());
  network_.Restore(id_);
  network_.Delay(id_, std::chrono::microseconds(100));
  ASSERT_TRUE(link_->Send(Numbered(2)).ok());
  ASSERT_TRUE(server_.WaitFrames(2));
  EXPECT_EQ(server_.frames()[0].sequence(), 1u);
}

TEST_F(SimNetworkTest, OneEndAloneLearnsOfAHalfReset) {
  network_.ResetOneEnd(id_, /*client=*/true);
  ASSERT_TRUE(client_.WaitClosed());
  EXPECT_TRUE(server_.closed().ok()) << "the other end learns it from the silence only";
  ASSERT_TRUE(server_.WaitClosed());
}

TEST_F(SimNetworkTest, AKilledProcessIsGoneForEver) {
  network_.Kill("there");
  ASSERT_TRUE(client_.WaitClosed());
  auto again = here_->Connect(listener_->address(), client_.Events(), milliseconds(1000));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(there_->Listen("there:0", [this](auto) { return server_.Events(); }).ok());
}

TEST_F(SimNetworkTest, AnUnreachableProcessDoesNotAnswer) {
  network_.Shield("there", true);
  auto link = here_->Connect(listener_->address(), second_.Events(), milliseconds(200));
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("did not answer within 200 ms"));
  ASSERT_TRUE(link_->Send(Numbered(1)).ok());
  EXPECT_TRUE(server_.WaitFrames(1)) << "open links stay";
  network_.Shield("there", false);
  EXPECT_TRUE(here_->Connect(listener_->address(), second_.Events(), milliseconds(5000)).ok());
}

}  // namespace
}  // namespace gangway::transport
