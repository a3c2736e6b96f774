// The controller around controller/core. It turns what links and timers bring into steps of the core, and hands the
// core's actions to those who keep what they concern: the links of clients, schedulers and compilers (client_links.h,
// scheduler_links.h, compiler_links.h), the questions that are under way (status_queries.h, trace_queries.h,
// why_queries.h) and the programs that are held (held_programs.h). None of them knows this class. Schedulers of this
// process have no links: at the end of each round of the loop, the controller and they run in turns until neither has
// anything for the other.
//
// Threading: everything runs on the given event loop, which outlives this object. The output of one
// loop round leaves as one batch per link.
//
// Liveness: the controller and a scheduler in its own process exchange heartbeats, and the compiler sends them; one
// whose link closes, or that is silent for 5 s, is dead.
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
#include "gangway/base/earliest_timer.h"
#include "gangway/base/executor.h"
#include "gangway/base/heap.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/memory_budget.h"
#include "gangway/base/pulse.h"
#include "gangway/controller/core/controller.h"
#include "gangway/controller/service/client_links.h"
#include "gangway/controller/service/compiler_links.h"
#include "gangway/controller/service/held_programs.h"
#include "gangway/controller/service/scheduler_links.h"
#include "gangway/controller/service/status_queries.h"
#include "gangway/controller/service/trace_queries.h"
#include "gangway/controller/service/why_queries.h"
#include "gangway/transport/handshake/handshake.h"
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

  ClientLinks::Events EventsOfClients();
  SchedulerLinks::Events EventsOfSchedulers();
  CompilerLinks::Events EventsOfCompilers();
  StatusQueries::Events EventsOfStatusQueries();
  TraceQueries::Events EventsOfTraceQueries();
  WhyQueries::Events EventsOfWhyQueries();

  wire::Frame NewReply() const;
  wire::Frame NewTerms(uint32_t island) const;
  void OnFrame(wire::Role role, uint64_t key, wire::Frame& frame);
  void OnClientFrame(SessionId session, wire::Frame& frame);
  void OnToolFrame(uint64_t tool, wire::Frame& frame);
  void OnSchedulerFrame(uint32_t island, wire::Frame& frame);
  void OnCompilerFrame(uint32_t compiler, wire::Frame& frame);
  void OnWritable(wire::Role role, uint64_t key);
  void OnClosed(wire::Role role, uint64_t key, const absl::Status& why);
  void OnPulse(Clock::time_point now, Clock::duration stood_still);

  void OnStatusRequest(uint64_t tool, const wire::StatusRequest& request);
  void OnPresence();
  void OnDrainRequest(uint64_t tool, const wire::DrainRequest& request);
  void FinishDrain();
  uint32_t AskForUsage(uint64_t probe);
  std::set<std::string> AskForTraces(const wire::Frame& question);
  void FillStatus(wire::StatusReply& reply) const;
  // head_memory.cc
  void RefusePrograms(SessionId session, wire::Frame& frame);
  absl::Status TakeProgram(SessionId session, const wire::CompileOp& op, uint64_t dropped_bytes);
  void FillMemory(wire::StatusReply& reply) const;

  void Step(Event event, uint64_t batch = 0);
  void Arm();
  void Flush();
  void Say(const std::string& event);

  EventLoop* const loop_;
  const ControllerOptions options_;
  Controller core_;
  LatencyHold latency_{&LatencyRequest::OfProcess()};
  HeldPrograms held_programs_;
  ClientLinks clients_;
  SchedulerLinks schedulers_;
  CompilerLinks compilers_;
  StatusQueries status_queries_;
  TraceQueries trace_queries_;
  WhyQueries why_queries_;
  std::string compiled_;  // the executable of the CompileResult at hand
  std::map<uint64_t, std::shared_ptr<transport::Link>> tools_;
  bool started_up_ = false;            // all declared processes have been up at a time
  std::set<uint64_t> awaiting_ready_;  // tools that are answered once they are
  uint64_t next_key_ = 1;              // of the links of tools, schedulers and compilers
  std::function<void()> drained_;      // of DrainAll, until called
  EarliestTimer deadline_{loop_, [this] { Step(Tick{}); }};
  HeapTrimmer heap_{uint64_t{32} << 20, uint64_t{32} << 20};
  std::unique_ptr<Pulse> pulse_;
  std::shared_ptr<bool> alive_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_CONTROLLER_SERVICE_H_
