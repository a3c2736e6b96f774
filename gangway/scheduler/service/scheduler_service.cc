// Implementation of scheduler_service.h.
#include "gangway/scheduler/service/scheduler_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/trace.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"

namespace gangway::scheduler {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{500};
constexpr std::chrono::seconds kPaused{1};  // a watch that is so late: this process stood still

// What a step decided, for the flight recorder.
void Record(const Actions& actions, uint32_t island, Time now) {
  for (const auto& [worker, item] : actions.to_workers) {
    for (uint64_t ordinal : item.release().ordinals())
      TraceAt(now, TraceKind::kRelease, island, 0, ordinal);
    if (item.has_node())
      TraceAt(now, TraceKind::kQueue, island, item.node().session(), item.node().ordinal(),
              item.node().launch().executable() * 8 + item.node().kind_case());
  }
  for (const wire::Report& report : actions.to_controller) {
    if (report.has_done())
      TraceAt(now, TraceKind::kDone, island, 0, report.done().ordinal(),
              static_cast<uint64_t>(report.done().failure().code()));
  }
}

}  // namespace

class SchedulerService::WorkerEndpoint final : public transport::Endpoint {
 public:
  WorkerEndpoint(SchedulerService* service, std::shared_ptr<bool> alive, uint32_t worker,
                 uint64_t incarnation)
      : service_(service), alive_(std::move(alive)), worker_(worker), incarnation_(incarnation) {}
  void OnFrame(wire::Frame frame) override {
    if (*alive_) service_->OnWorkerFrame(worker_, incarnation_, std::move(frame));
  }
  void OnClosed(const absl::Status& why) override {
    if (*alive_) service_->OnWorkerClosed(worker_, incarnation_, why);
  }

 private:
  SchedulerService* const service_;
  const std::shared_ptr<bool> alive_;
  const uint32_t worker_;
  const uint64_t incarnation_;
};

SchedulerService::SchedulerService(EventLoop* loop, SchedulerOptions options)
    : loop_(loop),
      options_(std::move(options)),
      island_(options_.island),
      workers_(options_.island.workers.size()),
      alive_(std::make_shared<bool>(true)) {
  loop_->AddRoundEnd([this, alive = alive_] {
    if (*alive) Flush();
  });
  loop_->Post([this, alive = alive_] {
    if (*alive) WatchSilence();
  });
}

SchedulerService::~SchedulerService() { *alive_ = false; }

absl::Status SchedulerService::ConnectController(transport::Transport& transport,
                                                 const std::string& address,
                                                 std::chrono::milliseconds limit) {
  transport::LinkEvents events;
  events.executor = loop_;
  events.on_frame = [this, alive = alive_](wire::Frame frame) {
    if (*alive) OnControllerFrame(std::move(frame));
  };
  events.on_closed = [this, alive = alive_](const absl::Status& why) {
    if (*alive) Say(absl::StrCat("the link to the controller closed: ", why.ToString()));
  };
  auto link = transport.Connect(address, std::move(events), limit);
  if (!link.ok()) return link.status();
  wire::Frame frame;
  wire::Hello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_build_version(wire::kBuildVersion);
  hello->set_role(wire::ROLE_SCHEDULER);
  hello->set_name(absl::StrCat("scheduler of island", options_.island.island));
  hello->mutable_worker()->set_island(options_.island.island);
  absl::Status sent = (*link)->Send(std::move(frame));
  loop_->Post([this, alive = alive_, kept = *link] {
    if (*alive) controller_ = kept;
  });
  return sent;
}

void SchedulerService::OnControllerFrame(wire::Frame frame) {
  if (frame.has_island_batch()) Step(FromController{std::move(*frame.mutable_island_batch())});
  if (frame.has_why_request()) OnWhyRequest(frame.why_request());
  if (frame.has_trace_request()) OnTraceRequest(frame.trace_request());
}

void SchedulerService::OnWhyRequest(const wire::WhyRequest& request) {
  std::vector<Time> heard;
  for (const WorkerLink& worker : workers_) heard.push_back(worker.heard);
  wire::Frame frame;
  frame.set_epoch(options_.epoch);
  frame.mutable_why_reply()->set_probe(request.probe());
  island_.Explain(request, EventLoop::Clock::now(), heard, *frame.mutable_why_reply());
  if (controller_) (void)controller_->Send(std::move(frame));  // who does not answer is named
}

// Its own records, unless its process is the one that asks; and its workers'.
void SchedulerService::OnTraceRequest(const wire::TraceRequest& request) {
  for (WorkerLink& worker : workers_) {
    if (!worker.link) continue;
    wire::Frame frame;
    frame.set_epoch(options_.epoch);
    frame.set_incarnation(worker.incarnation);
    *frame.mutable_trace_request() = request;
    (void)worker.link->Send(std::move(frame));  // who does not answer is left out, by name
  }
  if (request.asker() == TraceProcess() || !controller_) return;
  for (wire::Frame& reply :
       wire::TraceFrames(request, absl::StrCat("scheduler ", options_.island.island)))
    (void)controller_->Send(std::move(reply));
}

absl::StatusOr<std::unique_ptr<transport::Endpoint>> SchedulerService::WelcomeWorker(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  const wire::WorkerRegistration& registration = hello.worker();
  uint32_t index = registration.index();
  std::string name = absl::StrCat("island", registration.island(), "/worker", index);
  if (registration.island() != options_.island.island || index >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not declared: this island has ", workers_.size(),
                     " workers. Start it with the island and index it was declared with."));
  }
  size_t declared = options_.island.workers[index].devices.size();
  if (registration.device_count() != declared) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has ", registration.device_count(),
                                                      " devices, it was declared with ", declared));
  }
  if (registration.incarnation() == 0)
    return absl::InvalidArgumentError("a worker needs an incarnation");
  WorkerLink& worker = workers_[index];
  if (!worker.link) {
    if (absl::Status status = Register(index, link, hello); !status.ok()) return status;
  } else if (worker.newcomer) {
    return absl::AlreadyExistsError(absl::StrCat("two processes wait already to become ", name,
                                                 ": start one for each declared place"));
  } else {  // its next heartbeat, or its end, decides
    worker.newcomer = link;
    worker.newcomer_hello = hello;
  }
  return std::make_unique<WorkerEndpoint>(this, alive_, index, registration.incarnation());
}

absl::Status SchedulerService::Register(uint32_t index,
                                        const std::shared_ptr<transport::Link>& link,
                                        const wire::Hello& hello) {
  const wire::WorkerRegistration& registration = hello.worker();
  wire::Frame reply;
  reply.set_epoch(options_.epoch);
  reply.mutable_hello_reply()->set_epoch(options_.epoch);
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  reply.mutable_hello_reply()->set_data_key(options_.data_key);
  if (auto status = link->Send(std::move(reply)); !status.ok()) return status;
  WorkerLink& worker = workers_[index];
  worker.link = link;
  worker.incarnation = registration.incarnation();
  worker.process_id = hello.process_id();
  worker.host = registration.host();
  worker.heard = EventLoop::Clock::now();
  worker.batch.Clear();
  worker.stuck = false;
  Say(absl::StrCat("island", registration.island(), "/worker", index, " is up (pid ",
                   hello.process_id(), ", ", registration.device_count(), " ",
                   registration.device_kind(), " devices)"));
  Step(WorkerUp{registration, hello.process_id()});
  return absl::OkStatus();
}

void SchedulerService::AdmitNewcomer(uint32_t index) {
  WorkerLink& worker = workers_[index];
  if (!worker.newcomer) return;
  auto link = std::exchange(worker.newcomer, nullptr);
  absl::Status status = Register(index, link, worker.newcomer_hello);
  if (!status.ok()) link->Close(status);
}

void SchedulerService::RefuseNewcomer(uint32_t index) {
  WorkerLink& worker = workers_[index];
  auto link = std::exchange(worker.newcomer, nullptr);
  const std::string name = absl::StrCat("island", options_.island.island, "/worker", index);
  const absl::Status why = absl::AlreadyExistsError(absl::StrCat(
      name, " is there already: process ", worker.process_id, " on ", worker.host,
      ", whose heartbeats come. A place belongs to one process: end that one first, or start this "
      "one with the --island and --index of another place."));
  Say(absl::StrCat("a second process (pid ", worker.newcomer_hello.process_id(), " on ",
                   worker.newcomer_hello.worker().host(), ") came for ", name, " and was refused"));
  wire::Frame reply;
  *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
  (void)link->Send(std::move(reply));  // closing either way
  link->Close(why);
}

void SchedulerService::OnWorkerFrame(uint32_t worker, uint64_t incarnation, wire::Frame frame) {
  if (workers_[worker].incarnation != incarnation) return;
  WorkerLink& state = workers_[worker];
  state.heard = EventLoop::Clock::now();
  if (state.newcomer) RefuseNewcomer(worker);
  if (frame.has_heartbeat() && (state.stuck || frame.heartbeat().stuck_size() > 0)) {
    state.stuck = frame.heartbeat().stuck_size() > 0;
    Step(WorkerBeat{worker, incarnation, std::move(*frame.mutable_heartbeat())});
  }
  if (frame.has_trace_reply() && controller_) (void)controller_->Send(frame);
  if (frame.has_report_batch())
    Step(FromWorker{worker, incarnation, std::move(*frame.mutable_report_batch())});
}

void SchedulerService::OnWorkerClosed(uint32_t worker, uint64_t incarnation,
                                      const absl::Status& why) {
  const bool waited = workers_[worker].newcomer &&
                      workers_[worker].newcomer_hello.worker().incarnation() == incarnation;
  if (waited) workers_[worker].newcomer.reset();
  if (workers_[worker].incarnation != incarnation) return;
  workers_[worker].link.reset();
  workers_[worker].incarnation = 0;
  Say(absl::StrCat("island", options_.island.island, "/worker", worker,
                   " is down: ", why.message()));
  Step(WorkerDown{worker, incarnation,
                  wire::MakeFailure(absl::StatusCode::kUnavailable,
                                    absl::StrCat("its link closed (", why.message(), ")"))});
  AdmitNewcomer(worker);
}

void SchedulerService::WatchSilence() {
  auto now = EventLoop::Clock::now();
  const bool paused = watched_ != Time() && now - watched_ > kBeatInterval + kPaused;
  watched_ = now;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    WorkerLink& state = workers_[worker];
    if (paused) state.heard = now;  // what came meanwhile is still to be read
    Beat(state);
    if (!state.link || now - state.heard < options_.silence_max) continue;
    absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("silent for ", options_.silence_max.count(), " ms"));
    const uint64_t silent = state.process_id;
    state.link->Close(why);
    OnWorkerClosed(worker, state.incarnation, why);  // may admit another process
    if (options_.on_silent) options_.on_silent(silent);
  }
  loop_->PostAt(now + kBeatInterval, [this, alive = alive_] {
    if (*alive) WatchSilence();
  });
}

void SchedulerService::Beat(const WorkerLink& worker) {
  if (!worker.link) return;
  wire::Frame frame;
  frame.set_epoch(options_.epoch);
  frame.set_incarnation(worker.incarnation);
  frame.mutable_heartbeat()->set_time_ns(EventLoop::Clock::now().time_since_epoch().count());
  (void)worker.link->Send(std::move(frame));  // a link that takes nothing is closed by Flush
}

void SchedulerService::Step(Event event) {
  Actions actions;
  const Time now = EventLoop::Clock::now();
  island_.Step(std::move(event), now, actions);
  Record(actions, options_.island.island, now);
  for (auto& [worker, item] : actions.to_workers)
    *workers_[worker].batch.add_items() = std::move(item);
  for (const std::string& notice : actions.notices)
    Say(absl::StrCat("island", options_.island.island, ": ", notice));
  for (wire::Report& report : actions.to_controller) *reports_.add_reports() = std::move(report);
  Arm();
}

void SchedulerService::Arm() {
  std::optional<Time> next = island_.next_deadline();
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  loop_->PostAt(*next, [this, alive = alive_] {
    if (!*alive) return;
    armed_.reset();
    Step(Tick{});
  });
}

void SchedulerService::Flush() {
  for (uint32_t index = 0; index < workers_.size(); ++index) {
    WorkerLink& worker = workers_[index];
    if (worker.batch.items().empty()) continue;
    wire::Frame frame;
    frame.set_epoch(options_.epoch);
    frame.set_incarnation(worker.incarnation);
    frame.mutable_island_batch()->Swap(&worker.batch);
    if (!worker.link) continue;
    absl::Status sent = worker.link->Send(std::move(frame));
    if (sent.ok()) continue;
    // A worker that does not take its messages is as good as gone; what it missed cannot be
    // replayed.
    worker.link->Close(sent);
    OnWorkerClosed(index, worker.incarnation, sent);
  }
  if (reports_.reports().empty() || !controller_) return;
  wire::Frame frame;
  frame.set_epoch(options_.epoch);
  frame.mutable_report_batch()->Swap(&reports_);
  absl::Status sent = controller_->Send(std::move(frame));
  if (!sent.ok()) Say(absl::StrCat("reports to the controller are lost: ", sent.ToString()));
}

void SchedulerService::Say(const std::string& event) {
  if (options_.on_event) options_.on_event(event);
}

}  // namespace gangway::scheduler
