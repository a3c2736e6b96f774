// The link of a scheduler in a process of its own to its controller: the first exchange, heartbeats in both directions,
// reports and answers.
//
// Threading: everything runs on the given event loop, which outlives this object, except Connect.
//
// Failure: a link that closes, that takes no more reports, or on which nothing arrives for `silence_max` is lost for
// good: reports that are lost cannot be sent again.
#ifndef GANGWAY_SCHEDULER_SERVICE_CONTROLLER_LINK_H_
#define GANGWAY_SCHEDULER_SERVICE_CONTROLLER_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class ControllerLink {
 public:
  struct Options {
    uint32_t island = 0;
    std::string token;  // the cluster's
    std::chrono::milliseconds silence_max{10000};
  };
  struct Events {
    std::function<void(const wire::HelloReply& terms)> on_terms;  // of the island; first
    std::function<void(wire::Frame& frame)> on_frame;             // may take what it holds
    std::function<void(const absl::Status& why)> on_lost;         // last; not without on_terms
  };

  ControllerLink(EventLoop* loop, Options options, Events events);
  ~ControllerLink();  // on the loop, or after it has stopped

  // Registers with the controller. Blocks for at most `limit`; not on the loop. UNAVAILABLE, DEADLINE_EXCEEDED: the
  // controller does not answer. Other errors: its rejection.
  absl::Status Connect(transport::Transport& controller, const std::string& address,
                       std::chrono::milliseconds limit);

  // Nothing is sent once the link is lost.
  void SendReports(wire::ReportBatch& reports);  // leaves it empty
  void SendAnswer(wire::Frame frame);            // to a question: ahead of the reports that wait
  void OnPulse(Clock::time_point now, Clock::duration stood_still);

 private:
  wire::Frame Introduce() const;
  void SetLink(std::shared_ptr<transport::Link> link);
  void OnFrame(wire::Frame frame);
  void OnClosed(const absl::Status& why);
  void AfterSend(const absl::Status& sent);

  EventLoop* const loop_;
  const Options options_;
  const Events events_;
  std::function<void(const absl::Status&)> on_answer_;  // called once, with the reply to Hello
  uint64_t epoch_ = 0;  // of the controller, once it has accepted this
  bool accepted_ = false;
  std::shared_ptr<transport::Link> link_;  // null once it is lost
  std::unique_ptr<transport::PacedSender> sender_;
  Clock::time_point heard_;
  std::shared_ptr<bool> alive_;  // false once destroyed; the link's events check it
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_SERVICE_CONTROLLER_LINK_H_
