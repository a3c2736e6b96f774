// The scheduler of one island around scheduler/core: links to its workers, the controller, timers, liveness. In a
// process of its own it has a link to the controller (controller_link.h). In the controller's process, the controller
// runs it through IslandPort.
//
// Threading: everything runs on the given event loop, which outlives this object. The output of one loop round leaves
// as one batch per link, which PacedSender cuts where it is large. In the controller's process, its batches leave after
// the controller has taken its reports and given it items, so that one round does all that follows from a message.
//
// Liveness: heartbeats go both ways. A worker whose link closes is dead at once; a worker that is
// silent for 5 s is dead, and fenced by its incarnation. Time during which this process itself was
// stopped does not count as silence. One process holds a worker's place: a second claimant waits
// until the incumbent is dead, and is rejected by the incumbent's next message.
//
// Failure: a scheduler that has lost its controller is useless and must be destroyed; its workers notice.
#ifndef GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_
#define GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/earliest_timer.h"
#include "gangway/base/executor.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/pulse.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/scheduler/service/controller_link.h"
#include "gangway/transport/frame_part.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/wire/island_port.h"
#include "gangway/wire/put_limits.h"

namespace gangway::scheduler {

struct SchedulerOptions {
  uint32_t island = 0;
  std::chrono::milliseconds silence_max{5000};
  uint64_t put_cost_max = wire::kPutWorkerCostMax;         // as in IslandConfig
  std::function<void(uint64_t process_id)> on_silent;      // a silent worker was declared dead
  std::function<void(const std::string& event)> on_event;  // one log line per event; may be empty
  // The rest is for a process of its own.
  std::string token;  // the cluster's, for the controller
  // Hold the latency request while a node is under way, if the cluster does. In the controller's process, the
  // controller holds it for longer.
  bool latency_request = false;
  std::chrono::milliseconds controller_silence_max{10000};  // longer, since more is lost
  std::function<void(const absl::Status& why)>
      on_controller_lost;  // once, on the loop; may be empty
};

class SchedulerService final : public wire::IslandPort {
 public:
  // In a process of its own. Registers with the controller, whose reply describes the island. Blocks for at most
  // `limit`; not on the loop. Errors: of ControllerLink::Connect.
  static absl::StatusOr<std::unique_ptr<SchedulerService>> Connect(EventLoop* loop,
                                                                   SchedulerOptions options,
                                                                   transport::Transport& controller,
                                                                   const std::string& address,
                                                                   std::chrono::milliseconds limit);
  // In the controller's process; on the loop, to whose round ends the controller has added its own. `terms`: what the
  // controller tells a scheduler of this island.
  static std::unique_ptr<SchedulerService> Host(EventLoop* loop, SchedulerOptions options,
                                                const wire::HelloReply& terms);
  ~SchedulerService() override;  // on the loop, or after it has stopped

  void Take(wire::Frame frame) override { OnControllerFrame(frame); }
  std::vector<wire::Frame> Give() override;

  // Takes the link of a worker, or of a tool, which may ask whether the scheduler is up. On the
  // loop.
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> Welcome(
      const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);

 private:
  class WorkerEndpoint;
  class ToolEndpoint;
  struct WorkerLink {
    std::shared_ptr<transport::Link> link;
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    Incarnation incarnation;
    uint64_t process_id = 0;
    std::string host;
    Clock::time_point heard;
    std::vector<transport::FramePartRef> items;  // that are not sent yet; workers share them
    // When `items` go that only free storages. Absent: there are others, or none.
    std::optional<Clock::time_point> frees_due;
    bool frees_later = false;  // it is in free_later_
    bool told = false;         // its last heartbeat named devices
    // A second claimant of the place; it waits for proof that the incumbent is alive or dead.
    std::shared_ptr<transport::Link> newcomer;
    wire::Hello newcomer_hello;
  };

  SchedulerService(EventLoop* loop, SchedulerOptions options);
  void Begin(const wire::HelloReply& reply);
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> WelcomeWorker(
      const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);
  void Step(Event event);
  void Flush();
  void Arm();
  void OnPulse(Clock::time_point now, Clock::duration stood_still);
  void Beat(const WorkerLink& worker);
  // The worker is sent it at the end of the round; what only frees storages, with what is sent to it next.
  void Queue(uint32_t worker, const transport::FramePartRef& item, bool frees_only);
  void FlushFreesLater(uint32_t worker);  // when the frees that it has are due
  void FlushFrees();
  absl::Status Register(uint32_t worker, const std::shared_ptr<transport::Link>& link,
                        const wire::Hello& hello);
  void AdmitNewcomer(uint32_t worker);
  void RefuseNewcomer(uint32_t worker);
  void OnControllerFrame(wire::Frame& frame);  // takes what it holds
  void OnControllerLost(const absl::Status& why);
  std::vector<Time> Heard() const;  // when each worker's last message arrived
  void OnWhyRequest(const wire::WhyRequest& request);
  void OnTraceRequest(const wire::TraceRequest& request);
  void AnswerController(wire::Frame frame);
  void OnWorkerFrame(uint32_t worker, Incarnation incarnation, wire::Frame frame);
  void OnWorkerWritable(uint32_t worker, Incarnation incarnation);
  void KeepPrograms(wire::IslandBatch& batch);
  std::shared_ptr<const std::string> ProgramOf(const wire::Load& load) const;
  void AfterSend(uint32_t worker, const absl::Status& sent);
  void OnWorkerClosed(uint32_t worker, Incarnation incarnation, const absl::Status& why);
  void LoseWorker(WorkerDown down);
  void ReplaceWorker(const WorkerDown& down);
  void Say(const std::string& event);

  EventLoop* const loop_;
  const SchedulerOptions options_;
  // Set by the controller's terms.
  uint64_t epoch_ = 0;
  std::string data_key_;                // workers check clients' data tokens with it
  bool cluster_holds_latency_ = false;  // HelloReply.latency_request
  bool isolated_ = false;               // IslandTerms.isolated
  wire::EndedSessions ended_;           // so far
  IslandConfig config_;
  std::unique_ptr<Island> island_;
  LatencyHold latency_{&LatencyRequest::OfProcess()};
  std::vector<WorkerLink> workers_;
  std::vector<uint32_t> to_flush_;  // workers with items that go in this round
  // Workers that had, or have, items that only free storages. frees_due_ is set for the earliest of them.
  std::vector<uint32_t> free_later_;
  std::vector<transport::FramePartRef> sent_;   // of Flush, whose memory is kept
  std::unique_ptr<ControllerLink> controller_;  // null: in the controller's process
  // Of each loaded executable. Kept apart from the core, so that what waits for a worker shares them.
  absl::flat_hash_map<ExecutableId, std::shared_ptr<const std::string>> programs_;
  std::vector<ExecutableId> unloaded_;  // in this round: a Load that is not sent yet may need them
  wire::ReportBatch reports_;           // of this round
  std::vector<wire::Frame> answers_;    // for a controller of this process
  EarliestTimer deadline_{loop_, [this] { Step(Tick{}); }};
  EarliestTimer frees_due_{loop_, [this] { FlushFrees(); }};
  std::unique_ptr<Pulse> pulse_;
  bool beat_last_ = false;  // workers got heartbeats in the last pulse, and get none in the next
  std::shared_ptr<bool> alive_;  // false once destroyed; timers and flushes check it
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_SERVICE_SCHEDULER_SERVICE_H_
