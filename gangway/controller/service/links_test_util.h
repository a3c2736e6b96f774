// What the unit tests of the controller's links and questions share: a link that keeps what it is sent, and a fixture
// that runs a test's steps on an event loop.
#ifndef GANGWAY_CONTROLLER_SERVICE_LINKS_TEST_UTIL_H_
#define GANGWAY_CONTROLLER_SERVICE_LINKS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

// Used on the loop only.
class KeepingLink final : public transport::Link {
 public:
  absl::Status Send(wire::Frame frame) override {
    if (!refusal.ok()) return refusal;
    sent.push_back(std::move(frame));
    if (on_sent) on_sent();
    return absl::OkStatus();
  }
  size_t queued_bytes() const override { return 0; }
  size_t writable_bytes() const override { return 1; }
  size_t frame_bytes_max() const override { return SIZE_MAX; }
  void Close(const absl::Status& why) override { closed = why; }
  const transport::Peer& peer() const override { return peer_; }

  std::vector<wire::Frame> sent;
  absl::Status refusal;                // of all that is sent from now on
  std::optional<absl::Status> closed;  // why
  std::function<void()> on_sent;

 private:
  const transport::Peer peer_;
};

class LinksTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kLimit{30};

  ~LinksTest() override { loop_.Stop(); }

  void OnLoop(const std::function<void()>& task) {
    auto done = std::make_shared<Answer<bool>>();
    loop_.Post([task, done] {
      task();
      done->Set(true);
    });
    ASSERT_TRUE(done->WaitFor(kLimit));
  }

  EventLoop loop_{"controller"};
  std::shared_ptr<KeepingLink> link_ = std::make_shared<KeepingLink>();
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_LINKS_TEST_UTIL_H_
