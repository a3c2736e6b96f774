// The scheduler of one island around scheduler/core: links to its workers and to the controller,
// timers, liveness.
//
// Threading: everything on the event loop that is given, which outlives this. What one round of the
// loop produces leaves as one frame per link. Liveness: heartbeats go both ways; a worker whose
// link closes is dead at once; one that is silent for 5 s is dead and fenced by its incarnation.
// While this process itself stood still, nobody counts as silent. A place belongs to one process:
// who comes second waits until the first is dead, and is refused when that beats.
#ifndef GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_
#define GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/transport.h"

namespace gangway::scheduler {

struct SchedulerOptions {
  IslandConfig island;
  uint64_t epoch = 0;
  std::string data_key;  // workers check clients' data tokens with it
  std::chrono::milliseconds silence_max{5000};
  std::function<void(uint64_t process_id)> on_silent;  // a worker was declared dead by silence
  std::function<void(const std::string& event)>
      on_event;  // for people: one line each; may be empty
};

class SchedulerService {
 public:
  SchedulerService(EventLoop* loop, SchedulerOptions options);
  ~SchedulerService();  // on the loop, or after it has stopped

  // Opens the link to the controller. Blocks for at most `limit`; not on the loop.
  absl::Status ConnectController(transport::Transport& transport, const std::string& address,
                                 std::chrono::milliseconds limit);

  // Takes a worker's link. On the loop.
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> WelcomeWorker(
      const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);

 private:
  class WorkerEndpoint;
  struct WorkerLink {
    std::shared_ptr<transport::Link> link;
    uint64_t incarnation = 0;
    uint64_t process_id = 0;
    std::string host;
    EventLoop::Clock::time_point heard;
    wire::IslandBatch batch;  // of this round
    bool stuck = false;       // its last heartbeat named a stuck device
    // Who has come for the same place, and waits to learn whether the one above lives.
    std::shared_ptr<transport::Link> newcomer;
    wire::Hello newcomer_hello;
  };

  void Step(Event event);
  void Flush();
  void Arm();
  void WatchSilence();
  void Beat(const WorkerLink& worker);
  absl::Status Register(uint32_t worker, const std::shared_ptr<transport::Link>& link,
                        const wire::Hello& hello);
  void AdmitNewcomer(uint32_t worker);
  void RefuseNewcomer(uint32_t worker);
  void OnControllerFrame(wire::Frame frame);
  void OnWhyRequest(const wire::WhyRequest& request);
  void OnTraceRequest(const wire::TraceRequest& request);
  void OnWorkerFrame(uint32_t worker, uint64_t incarnation, wire::Frame frame);
  void OnWorkerClosed(uint32_t worker, uint64_t incarnation, const absl::Status& why);
  void Say(const std::string& event);

  EventLoop* const loop_;
  const SchedulerOptions options_;
  Island island_;
  std::vector<WorkerLink> workers_;
  std::shared_ptr<transport::Link> controller_;
  wire::ReportBatch reports_;  // of this round
  std::optional<Time> armed_;
  EventLoop::Clock::time_point watched_;  // last
  std::shared_ptr<bool> alive_;           // false once destroyed: timers and flushes look
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_
