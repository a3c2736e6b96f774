// The controller around controller/core: links to clients, schedulers, the compiler and tools. Schedulers of this
// process have no links: at the end of each round of the loop, the controller and they run in turns until neither has
// anything for the other.
//
// Threading: everything runs on the given event loop, which outlives this object. The output of one
// loop round leaves as one batch per link, which PacedSender cuts where it is large.
//
// A client's welcome waits for the declared workers, but not long for some that are missing: its session
// then starts without their devices and is told their names. Without any worker it is rejected at the
// deadline. Liveness: the controller and a scheduler in its own process exchange heartbeats, and
// the compiler sends them; one whose link closes, or that is silent for 5 s, is dead.
#ifndef GANGWAY_CONTROLLER_SERVICE_CONTROLLER_SERVICE_H_
#define GANGWAY_CONTROLLER_SERVICE_CONTROLLER_SERVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/heap.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/memory_budget.h"
#include "gangway/base/pulse.h"
#include "gangway/controller/core/controller.h"
#include "gangway/controller/service/held_programs.h"
#include "gangway/controller/service/scheduler_links.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/island_port.h"

namespace gangway::controller {

struct ControllerOptions {
  ControllerConfig core;
  // At a client's Hello, for a worker to be up and, in this time after the start, for all workers.
  std::chrono::milliseconds welcome_max{15000};
  std::chrono::milliseconds absent_max{2000};  // at most that, for workers that were up before
  std::string data_key;     // makes clients' data tokens; sent to schedulers and workers
  wire::IslandTerms terms;  // sent to schedulers, with their workers added
  // Hold the latency request while something is under way, and tell clients, schedulers and workers to do so.
  bool latency_request = false;
  std::chrono::milliseconds silence_max{5000};
  std::shared_ptr<MemoryBudget> memory;  // of the process, for programs; null: no limit
  // A scheduler or compiler was declared dead, and its process must be ended and replaced.
  std::function<void(uint64_t process_id)> on_silent;
  // A spare compiler has work: its process is to be started. 1 is the first spare.
  std::function<void(uint32_t compiler)> on_spare_wanted;
  std::function<void(const std::string& event)> on_event;  // one log line per event; may be empty
  // The declared processes that are down, for people: first of the constructor, then at each change, and last an empty
  // text, once all have come up. May be empty.
  std::function<void(const std::string& absent)> on_absent;
};

class ControllerService {
 public:
  ControllerService(EventLoop* loop, ControllerOptions options);
  ~ControllerService();  // on the loop, or after it has stopped

  // Takes the link of a client, scheduler, compiler or tool. On the loop.
  absl::StatusOr<std::unique_ptr<transport::Endpoint>> Welcome(
      const std::shared_ptr<transport::Link>& link, const wire::Hello& hello);

  // Runs the scheduler of an island that is not remote, from now on. It is not owned, and is used on the loop only. Its
  // round ends come after this object's. On the loop.
  void Attach(uint32_t island, wire::IslandPort* scheduler) {
    schedulers_.Attach(island, scheduler);
  }
  // What a scheduler of the island is told. On the loop.
  wire::HelloReply Terms(uint32_t island) const;

  // Rejects all new work, and calls `done` once nothing runs and clients have had 500 ms to read
  // their last answers. On the loop; at most once.
  void DrainAll(std::function<void()> done);

 private:
  class LinkEndpoint;
  struct ClientLink {
    std::shared_ptr<transport::Link> link;
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    std::string name;
    bool wants_ends = false;
    Owner owner;
    bool welcomed = false;
    Clock::time_point since;
    wire::SessionEvents batch;  // of this round
  };
  struct CompilerLink {
    std::shared_ptr<transport::Link> link;
    std::unique_ptr<transport::PacedSender> sender;  // on `link`
    uint64_t key = 0;                                // of the link
    uint64_t process_id = 0;
    std::string name;
    Clock::time_point heard;
  };
  struct StatusQuery {
    std::shared_ptr<transport::Link> link;  // of a tool
    SessionId session;                      // of a client, which is told the devices' memory only
    uint64_t client_query = 0;              // its number
    uint32_t missing = 0;
    std::map<DeviceId, wire::DeviceUsage> devices;
    struct OfWorker {
      wire::DataBytes data;
      uint64_t nodes = 0;
    };
    std::map<std::pair<uint32_t, uint32_t>, OfWorker> workers;  // by island and index
  };

  struct TraceQuery {
    std::shared_ptr<transport::Link> link;
    uint64_t asked_ns = 0;
    std::set<std::string> missing;  // processes
    // Of a client, which is told only what belongs to its session (OB-3).
    SessionId session;
    uint64_t client_query = 0;
    std::set<uint64_t> gangs;                          // the session's
    std::set<uint64_t> executables;                    // that they launch
    std::map<uint64_t, std::string> executable_names;  // of all sessions
  };

  struct WhyQuery {
    std::shared_ptr<transport::Link> link;
    std::set<uint32_t> missing;  // islands
    wire::WhyReply reply;
  };

  SchedulerLinks::Events EventsOfSchedulers();
  wire::Frame NewTerms(uint32_t island) const;
  void OnSchedulerFrame(uint32_t island, wire::Frame& frame);
  wire::Frame NewReply() const;
  void OnFrame(wire::Role role, uint64_t key, wire::Frame& frame);
  void OnClientBeat(SessionId session, const wire::Heartbeat& beat);
  void OnWritable(wire::Role role, uint64_t key);
  std::unique_ptr<transport::PacedSender> NewSender(
      const std::shared_ptr<transport::Link>& link,
      const transport::PacedSender::Options& options = {});
  void EndSlowClient(SessionId session);
  void OnPulse(Clock::time_point now, Clock::duration stood_still);
  absl::Status WelcomeCompiler(const std::shared_ptr<transport::Link>& link,
                               const wire::Hello& hello, uint64_t key);
  CompilerLink* FindCompiler(uint64_t key);
  void WatchCompilers(Clock::time_point now, Clock::duration stood_still);
  void EndCompiler(const CompilerEnd& end);
  void OnCompilerClosed(uint32_t compiler, const absl::Status& why);
  void SendCompile(uint32_t compiler, wire::CompileRequest request);
  void OnClosed(wire::Role role, uint64_t key, const absl::Status& why);
  void WelcomeClients();
  // What sessions of one owner may use now.
  struct Seen {
    wire::Topology topology;
    std::string absent;
    bool awaits_replacement = false;  // of what is absent
  };
  Seen See(const Owner& owner) const;
  std::optional<wire::Failure> RefuseClient(const Owner& owner, const Seen& seen,
                                            bool waits_no_more) const;
  std::chrono::milliseconds AbsenceMax(Clock::time_point now, const Seen& seen) const;
  void SendWelcome(SessionId session, ClientLink& client);
  void OnStatusRequest(uint64_t tool, const wire::StatusRequest& request);
  void OnPresence();
  void OnUsage(uint32_t island, const wire::Usage& usage);
  void FinishStatus(uint64_t probe);
  void Probe(StatusQuery query);
  void FinishDrain();
  void OnDrainRequest(uint64_t tool, const wire::DrainRequest& request);
  // head_memory.cc
  void RefusePrograms(SessionId session, ClientLink& client, wire::Frame& frame);
  absl::Status TakeProgram(SessionId session, const wire::CompileOp& op, uint64_t dropped_bytes);
  void FillMemory(wire::StatusReply& reply) const;
  // seeing.cc
  void OnWhyRequest(uint64_t tool, wire::WhyRequest request);
  void ExplainClients(wire::WhyReply& reply) const;
  void OnWhyReply(uint32_t island, wire::WhyReply& reply);
  void FinishWhy(uint64_t probe);
  void OnTraceRequest(uint64_t tool);
  void Trace(TraceQuery query);
  void SendTrace(const TraceQuery& query, wire::Frame frame);
  void OnTraceReply(wire::Frame frame);
  void FinishTrace(uint64_t probe);
  // client_queries.cc
  void OnUsageRequest(SessionId session, const wire::UsageRequest& request);
  void FinishUsage(const StatusQuery& query);
  void OnClientTrace(SessionId session, const wire::TraceRequest& request);
  static void KeepSession(TraceQuery& query, wire::TraceReply& reply);
  static void AddExecutableNames(const TraceQuery& query, wire::TraceReply& reply);
  void Step(Event event, uint64_t batch = 0);
  void Arm();
  void Flush();
  void CloseEnded();
  void Say(const std::string& event);

  EventLoop* const loop_;
  const ControllerOptions options_;
  Controller core_;
  LatencyHold latency_{&LatencyRequest::OfProcess()};
  std::map<SessionId, ClientLink> clients_;
  HeldPrograms held_programs_;
  SchedulerLinks schedulers_;
  std::vector<CompilerLink> compilers_;  // as many as there may be
  std::string compiled_;                 // the executable of the CompileResult at hand
  std::map<uint64_t, std::shared_ptr<transport::Link>> tools_;
  bool started_up_ = false;            // all declared processes have been up at a time
  std::set<uint64_t> awaiting_ready_;  // tools that are answered once they are
  std::map<uint64_t, StatusQuery> queries_;
  std::vector<std::pair<SessionId, absl::Status>>
      ended_;  // sessions whose links are closed once they know why
  std::map<uint64_t, TraceQuery> traces_;
  std::map<uint64_t, WhyQuery> whys_;
  const Clock::time_point started_ = Clock::now();
  uint64_t next_session_ =
      1;                   // without gaps, so that those which have ended are few runs of numbers
  uint64_t next_key_ = 1;  // tools, schedulers, compilers, probes
  uint64_t frames_received_ = 0;   // from clients
  uint64_t frames_sent_ = 0;       // to clients
  std::function<void()> drained_;  // of DrainAll, until called
  std::optional<Time> armed_;
  HeapTrimmer heap_{uint64_t{32} << 20, uint64_t{32} << 20};
  std::unique_ptr<Pulse> pulse_;
  std::shared_ptr<bool> alive_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_CONTROLLER_SERVICE_H_
