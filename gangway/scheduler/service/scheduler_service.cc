// Implementation of scheduler_service.h.
#include "gangway/scheduler/service/scheduler_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/spin.h"
#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"

namespace gangway::scheduler {
namespace {

constexpr std::chrono::seconds kReplacedMax{
    2};  // until the next process of a worker has registered
// How long, and how many, messages wait that only free storages. What the ledger counts as free is free for whatever is
// sent behind them.
constexpr std::chrono::milliseconds kFreeWithin{10};
constexpr size_t kFreesHeldMax = 64;

// Records a step's decisions in the flight recorder.
void Record(const Actions& actions, uint32_t island, Time now) {
  for (const auto& [workers, item] : actions.to_workers) {
    for (uint64_t ordinal : item.release().ordinals())
      TraceAt(now, TraceKind::kRelease, island, {}, Ordinal(ordinal));
    if (item.has_node())
      TraceAt(now, TraceKind::kQueue, island, SessionId(item.node().session()),
              Ordinal(item.node().ordinal()),
              item.node().launch().executable() * 8 + item.node().kind_case());
  }
  for (const wire::Report& report : actions.to_controller) {
    if (report.has_done())
      TraceAt(now, TraceKind::kDone, island, {}, Ordinal(report.done().ordinal()),
              static_cast<uint64_t>(report.done().failure().code()));
  }
}

}  // namespace

class SchedulerService::WorkerEndpoint final : public transport::Endpoint {
 public:
  WorkerEndpoint(SchedulerService* service, std::shared_ptr<bool> alive, uint32_t worker,
                 Incarnation incarnation)
      : service_(service), alive_(std::move(alive)), worker_(worker), incarnation_(incarnation) {}
  void OnFrame(wire::Frame frame) override {
    if (*alive_) service_->OnWorkerFrame(worker_, incarnation_, std::move(frame));
  }
  void OnWritable() override {
    if (*alive_) service_->OnWorkerWritable(worker_, incarnation_);
  }
  void OnClosed(const absl::Status& why) override {
    if (*alive_) service_->OnWorkerClosed(worker_, incarnation_, why);
  }

 private:
  SchedulerService* const service_;
  const std::shared_ptr<bool> alive_;
  const uint32_t worker_;
  const Incarnation incarnation_;
};

// Learns only that the scheduler is up; the controller knows the rest.
class SchedulerService::ToolEndpoint final : public transport::Endpoint {
 public:
  ToolEndpoint(std::shared_ptr<transport::Link> link, uint64_t epoch)
      : link_(std::move(link)), epoch_(epoch) {}
  void OnFrame(wire::Frame frame) override {
    if (!frame.has_status_request()) return;
    wire::Frame reply;
    reply.mutable_status_reply()->set_epoch(epoch_);
    (void)link_->Send(std::move(reply));  // a tool that left needs no answer
  }
  void OnClosed(const absl::Status&) override { link_.reset(); }

 private:
  std::shared_ptr<transport::Link> link_;
  const uint64_t epoch_;
};

SchedulerService::SchedulerService(EventLoop* loop, SchedulerOptions options)
    : loop_(loop), options_(std::move(options)), alive_(std::make_shared<bool>(true)) {}

SchedulerService::~SchedulerService() { *alive_ = false; }

absl::StatusOr<std::unique_ptr<SchedulerService>> SchedulerService::Connect(
    EventLoop* loop, SchedulerOptions options, transport::Transport& controller,
    const std::string& address, std::chrono::milliseconds limit) {
  std::unique_ptr<SchedulerService> service(new SchedulerService(loop, std::move(options)));
  SchedulerService* const raw = service.get();
  raw->controller_ = std::make_unique<ControllerLink>(
      loop,
      ControllerLink::Options{.island = raw->options_.island,
                              .token = raw->options_.token,
                              .silence_max = raw->options_.controller_silence_max},
      ControllerLink::Events{
          .on_terms = [raw](const wire::HelloReply& terms) { raw->Begin(terms); },
          .on_frame = [raw](wire::Frame& frame) { raw->OnControllerFrame(frame); },
          .on_lost = [raw](const absl::Status& why) { raw->OnControllerLost(why); }});
  absl::Status status = raw->controller_->Connect(controller, address, limit);
  if (status.ok()) return service;
  loop->Post([unused = std::shared_ptr(std::move(service))] {});  // the loop may still use it
  return status;
}

std::unique_ptr<SchedulerService> SchedulerService::Host(EventLoop* loop, SchedulerOptions options,
                                                         const wire::HelloReply& terms) {
  std::unique_ptr<SchedulerService> service(new SchedulerService(loop, std::move(options)));
  service->Begin(terms);
  return service;
}

void SchedulerService::Begin(const wire::HelloReply& reply) {
  epoch_ = reply.epoch();
  data_key_ = reply.data_key();
  cluster_holds_latency_ = reply.latency_request();
  isolated_ = reply.island().isolated();
  ended_.Insert(reply.island().ended_sessions());
  if (cluster_holds_latency_ && options_.latency_request) latency_.Use(loop_);
  config_.island = options_.island;
  config_.budget_bytes = reply.island().budget_bytes();
  config_.put_cost_max = options_.put_cost_max;
  config_.memory_wait_max = std::chrono::milliseconds(reply.island().memory_wait_ms());
  config_.worker_wait_max = std::chrono::milliseconds(reply.island().worker_wait_ms());
  if (reply.island().late_after_ms() != 0)
    config_.late_after = std::chrono::milliseconds(reply.island().late_after_ms());
  if (reply.island().collective_limit_ms() != 0)
    config_.collective_limit = std::chrono::milliseconds(reply.island().collective_limit_ms());
  if (reply.island().orphan_limit_ms() != 0)
    config_.orphan_limit = std::chrono::milliseconds(reply.island().orphan_limit_ms());
  if (reply.island().callback_hold_ms() != 0)
    config_.callback_hold_max = std::chrono::milliseconds(reply.island().callback_hold_ms());
  for (const wire::Worker& worker : reply.island().workers()) {
    config_.workers.push_back({.devices = {worker.devices().begin(), worker.devices().end()},
                               .last_incarnation = Incarnation(worker.incarnation())});
  }
  island_ = std::make_unique<Island>(config_);
  workers_.resize(config_.workers.size());
  loop_->AddRoundEnd([this, alive = alive_] {
    if (*alive) Flush();
  });
  pulse_ = std::make_unique<Pulse>(
      loop_, [this](Clock::time_point now, Clock::duration still) { OnPulse(now, still); });
}

void SchedulerService::OnControllerFrame(wire::Frame& frame) {
  if (frame.has_island_batch()) {
    KeepPrograms(*frame.mutable_island_batch());
    for (const wire::IslandItem& item : frame.island_batch().items())
      if (item.has_end_session()) ended_.Insert(SessionId(item.end_session().session()));
    Step(FromController{std::move(*frame.mutable_island_batch())});
  }
  if (frame.has_why_request()) OnWhyRequest(frame.why_request());
  if (frame.has_trace_request()) OnTraceRequest(frame.trace_request());
}

std::vector<wire::Frame> SchedulerService::Give() {
  std::vector<wire::Frame> frames = std::exchange(answers_, {});
  if (!reports_.reports().empty()) frames.emplace_back().mutable_report_batch()->Swap(&reports_);
  return frames;
}

void SchedulerService::KeepPrograms(wire::IslandBatch& batch) {
  for (wire::IslandItem& item : *batch.mutable_items()) {
    if (!item.has_load()) continue;
    programs_[ExecutableId(item.load().executable())] = std::make_shared<const std::string>(
        std::exchange(*item.mutable_load()->mutable_serialized(), {}));
  }
}

std::shared_ptr<const std::string> SchedulerService::ProgramOf(const wire::Load& load) const {
  auto found = programs_.find(ExecutableId(load.executable()));
  return found == programs_.end() ? nullptr : found->second;
}

void SchedulerService::OnControllerLost(const absl::Status& why) {
  Say(absl::StrCat("the link to the controller closed: ", why.message()));
  if (options_.on_controller_lost) options_.on_controller_lost(why);
}

std::vector<Time> SchedulerService::Heard() const {
  std::vector<Time> heard;
  for (const WorkerLink& worker : workers_) heard.push_back(worker.heard);
  return heard;
}

void SchedulerService::OnWhyRequest(const wire::WhyRequest& request) {
  wire::Frame frame;
  frame.mutable_why_reply()->set_probe(request.probe());
  island_->Explain(request, Clock::now(), Heard(), *frame.mutable_why_reply());
  AnswerController(std::move(frame));
}

// Forwards the request to the workers, and sends this process's own records unless the asker shares
// the process.
void SchedulerService::OnTraceRequest(const wire::TraceRequest& request) {
  for (WorkerLink& worker : workers_) {
    if (!worker.link) continue;
    wire::Frame frame;
    frame.set_epoch(epoch_);
    frame.set_incarnation(worker.incarnation.number());
    *frame.mutable_trace_request() = request;
    (void)worker.link->Send(std::move(frame));  // a missing reply is named
  }
  if (request.asker() == TraceProcess()) return;
  for (wire::Frame& reply : wire::TraceFrames(request, wire::SchedulerTraceName(options_.island)))
    AnswerController(std::move(reply));
}

void SchedulerService::AnswerController(wire::Frame frame) {
  if (controller_) {
    controller_->SendAnswer(std::move(frame));
  } else {
    answers_.push_back(std::move(frame));
  }
}

absl::StatusOr<std::unique_ptr<transport::Endpoint>> SchedulerService::Welcome(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  if (hello.role() == wire::ROLE_WORKER) return WelcomeWorker(link, hello);
  if (hello.role() != wire::ROLE_TOOL) {
    return absl::InvalidArgumentError(absl::StrCat("this is the scheduler of island",
                                                   options_.island, ": ", hello.name(),
                                                   " must connect to the controller or a worker"));
  }
  wire::Frame reply;
  reply.set_epoch(epoch_);
  reply.mutable_hello_reply()->set_epoch(epoch_);
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  GANGWAY_RETURN_IF_ERROR(link->Send(std::move(reply)));
  return std::make_unique<ToolEndpoint>(link, epoch_);
}

absl::StatusOr<std::unique_ptr<transport::Endpoint>> SchedulerService::WelcomeWorker(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  const wire::WorkerRegistration& registration = hello.worker();
  uint32_t index = registration.index();
  std::string name = absl::StrCat("island", registration.island(), "/worker", index);
  if (registration.island() != options_.island || index >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not declared: this island has ", workers_.size(),
                     " workers. Start it with its declared island and index."));
  }
  size_t declared = config_.workers[index].devices.size();
  if (registration.device_count() != declared) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has ", registration.device_count(),
                                                      " devices, it was declared with ", declared));
  }
  if (registration.incarnation() == 0)
    return absl::InvalidArgumentError("a worker's registration needs a nonzero incarnation");
  WorkerLink& worker = workers_[index];
  if (!worker.link) {
    GANGWAY_RETURN_IF_ERROR(Register(index, link, hello));
  } else if (worker.newcomer) {
    return absl::AlreadyExistsError(absl::StrCat("another process already waits to become ", name,
                                                 ": start one process per declared worker"));
  } else {  // the incumbent's next message, or its end, decides
    worker.newcomer = link;
    worker.newcomer_hello = hello;
  }
  return std::make_unique<WorkerEndpoint>(this, alive_, index,
                                          Incarnation(registration.incarnation()));
}

absl::Status SchedulerService::Register(uint32_t index,
                                        const std::shared_ptr<transport::Link>& link,
                                        const wire::Hello& hello) {
  const wire::WorkerRegistration& registration = hello.worker();
  wire::Frame reply;
  reply.set_epoch(epoch_);
  reply.mutable_hello_reply()->set_epoch(epoch_);
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  reply.mutable_hello_reply()->set_data_key(data_key_);
  reply.mutable_hello_reply()->set_latency_request(cluster_holds_latency_);
  reply.mutable_hello_reply()->set_isolated(isolated_);
  ended_.AppendTo(*reply.mutable_hello_reply()->mutable_ended_sessions());
  GANGWAY_RETURN_IF_ERROR(link->Send(std::move(reply)));
  WorkerLink& worker = workers_[index];
  worker.link = link;
  worker.incarnation = Incarnation(registration.incarnation());
  worker.sender = std::make_unique<transport::PacedSender>(
      link,
      [this, incarnation = registration.incarnation()](wire::Frame& frame) {
        frame.set_epoch(epoch_);
        frame.set_incarnation(incarnation);
      },
      transport::PacedSender::Options());
  worker.process_id = hello.process_id();
  worker.host = registration.host();
  worker.heard = Clock::now();
  worker.items.clear();
  worker.frees_due.reset();
  worker.told = false;
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
  const std::string name = absl::StrCat("island", options_.island, "/worker", index);
  const absl::Status why = absl::AlreadyExistsError(absl::StrCat(
      name, " is already running: process ", worker.process_id, " on ", worker.host,
      ", whose heartbeats arrive. Only one process may claim it: end that process first, or start "
      "this one with the --island and --index of another declared worker."));
  Say(absl::StrCat("a second process (pid ", worker.newcomer_hello.process_id(), " on ",
                   worker.newcomer_hello.worker().host(), ") claimed ", name, " and was rejected"));
  wire::Frame reply;
  *reply.mutable_hello_reply()->mutable_failure() = wire::ToFailure(why);
  (void)link->Send(std::move(reply));  // closing either way
  link->Close(why);
}

void SchedulerService::OnWorkerFrame(uint32_t worker, Incarnation incarnation, wire::Frame frame) {
  if (workers_[worker].incarnation != incarnation) return;
  WorkerLink& state = workers_[worker];
  state.heard = Clock::now();
  if (state.newcomer) RefuseNewcomer(worker);
  const bool tells = frame.heartbeat().stuck_size() > 0 || frame.heartbeat().members_size() > 0 ||
                     frame.heartbeat().held_size() > 0;
  if (frame.has_heartbeat() && (tells || state.told)) {
    state.told = tells;
    Step(WorkerBeat{worker, incarnation, std::move(*frame.mutable_heartbeat()), Heard()});
  }
  if (frame.has_trace_reply()) return AnswerController(std::move(frame));
  if (!frame.has_report_batch()) return;
  for (const wire::Report& report : frame.report_batch().reports()) {
    if (!report.has_ending()) continue;
    wire::Failure why = report.ending();
    why.set_message(absl::StrCat("it ended itself, because ", why.message()));
    return LoseWorker({worker, incarnation, std::move(why)});
  }
  Step(FromWorker{worker, incarnation, std::move(*frame.mutable_report_batch())});
}

void SchedulerService::OnWorkerClosed(uint32_t worker, Incarnation incarnation,
                                      const absl::Status& why) {
  const bool waited =
      workers_[worker].newcomer &&
      workers_[worker].newcomer_hello.worker().incarnation() == incarnation.number();
  if (waited) workers_[worker].newcomer.reset();
  if (workers_[worker].incarnation != incarnation) return;
  LoseWorker({.worker = worker,
              .incarnation = incarnation,
              .why = wire::MakeFailure(absl::StatusCode::kUnavailable,
                                       absl::StrCat("its link closed (", why.message(), ")")),
              .crashed = !absl::IsDeadlineExceeded(why)});  // as a silent one is closed
}

void SchedulerService::LoseWorker(WorkerDown down) {
  const uint32_t worker = down.worker;
  workers_[worker].link.reset();
  workers_[worker].sender.reset();
  workers_[worker].incarnation = {};
  Say(absl::StrCat("island", options_.island, "/worker", worker, " is down: ", down.why.message()));
  Step(std::move(down));
  AdmitNewcomer(worker);
}

// A worker whose link closes ends its process. One that cannot, since it stands still, is ended by its supervisor.
void SchedulerService::ReplaceWorker(const WorkerDown& down) {
  WorkerLink& worker = workers_[down.worker];
  if (!worker.link || worker.incarnation != down.incarnation) return;
  Say(absl::StrCat("island", options_.island, "/worker", down.worker,
                   " is down: ", down.why.message()));
  worker.items.clear();
  worker.frees_due.reset();
  const auto link = std::exchange(worker.link, nullptr);
  worker.sender.reset();
  worker.incarnation = {};
  link->Close(wire::ToStatus(down.why));
  loop_->PostAt(Clock::now() + kReplacedMax,
                [this, alive = alive_, index = down.worker, process_id = worker.process_id] {
                  if (*alive && !workers_[index].link && options_.on_silent)
                    options_.on_silent(process_id);
                });
  AdmitNewcomer(down.worker);
}

void SchedulerService::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  if (controller_) controller_->OnPulse(now, stood_still);
  const bool beats = !std::exchange(beat_last_, !beat_last_);
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    WorkerLink& state = workers_[worker];
    state.heard = Pulse::Later(state.heard, stood_still, now);
    if (beats) Beat(state);
    if (!state.link || now - state.heard < options_.silence_max) continue;
    absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("silent for ", options_.silence_max.count(), " ms"));
    const uint64_t silent = state.process_id;
    state.link->Close(why);
    OnWorkerClosed(worker, state.incarnation, why);  // may admit another process
    if (options_.on_silent) options_.on_silent(silent);
  }
}

void SchedulerService::Beat(const WorkerLink& worker) {
  if (!worker.link) return;
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(Clock::now().time_since_epoch().count());
  (void)worker.sender->SendNow(std::move(frame));  // Flush closes a link that accepts nothing
}

// A gang that has ended frees what it has consumed just when its end goes to whoever waits for it: to wake the workers
// for that takes the cores that the next call needs.
void SchedulerService::Queue(uint32_t index, const transport::FramePartRef& item, bool frees_only) {
  WorkerLink& worker = workers_[index];
  const bool is_first = worker.items.empty();
  worker.items.push_back(item);
  if (!frees_only || worker.items.size() >= kFreesHeldMax) {
    if (is_first || worker.frees_due) to_flush_.push_back(index);
    worker.frees_due.reset();
  } else if (is_first) {
    worker.frees_due = Clock::now() + kFreeWithin;
    FlushFreesLater(index);
  }
}

void SchedulerService::FlushFreesLater(uint32_t index) {
  WorkerLink& worker = workers_[index];
  if (!std::exchange(worker.frees_later, true)) free_later_.push_back(index);
  frees_due_.SetBy(*worker.frees_due);
}

// The timer may be that of frees which have gone with something else: younger ones have their own time.
void SchedulerService::FlushFrees() {
  const Clock::time_point now = Clock::now();
  for (const uint32_t index : std::exchange(free_later_, {})) {
    WorkerLink& worker = workers_[index];
    worker.frees_later = false;
    if (worker.frees_due && *worker.frees_due > now) {
      FlushFreesLater(index);
    } else if (worker.frees_due) {
      worker.frees_due.reset();
      to_flush_.push_back(index);
    }
  }
}

void SchedulerService::Step(Event event) {
  Actions actions;
  const Time now = Clock::now();
  island_->Step(std::move(event), now, actions);
  latency_.Set(island_->node_count() != 0);
  if (island_->node_count() != 0) LoopWork::Note();
  Record(actions, options_.island, now);
  for (auto& [workers, item] : actions.to_workers) {
    const bool frees_only = item.has_free();
    wire::Frame frame;
    *frame.mutable_island_batch()->add_items() = std::move(item);
    const auto part = std::make_shared<const transport::FramePart>(std::move(frame));
    for (const uint32_t worker : workers) Queue(worker, part, frees_only);
  }
  for (const std::string& notice : actions.notices)
    Say(absl::StrCat("island", options_.island, ": ", notice));
  unloaded_.insert(unloaded_.end(), actions.unloaded.begin(), actions.unloaded.end());
  for (wire::Report& report : actions.to_controller) *reports_.add_reports() = std::move(report);
  for (const WorkerDown& down : actions.replaced) ReplaceWorker(down);
  Arm();
}

void SchedulerService::Arm() {
  std::optional<Time> next = island_->next_deadline();
  if (next) deadline_.SetBy(*next);
}

void SchedulerService::Flush() {
  for (size_t i = 0; i < to_flush_.size(); ++i) {  // a link that is closed here may add to it
    const uint32_t index = to_flush_[i];
    WorkerLink& worker = workers_[index];
    sent_.swap(worker.items);  // the memory is kept
    worker.items.clear();
    if (sent_.empty() || !worker.link) continue;
    const auto program_of = [this](const wire::Load& load) { return ProgramOf(load); };
    const absl::Status sent = worker.sender->SendParts(sent_, program_of);
    AfterSend(index, sent);
  }
  sent_.clear();
  to_flush_.clear();
  for (ExecutableId executable : unloaded_) programs_.erase(executable);
  unloaded_.clear();
  if (reports_.reports().empty()) return;
  if (controller_) return controller_->SendReports(reports_);
  loop_->Post([] {});  // of a link that closed here: the controller takes them in the next round
}

void SchedulerService::OnWorkerWritable(uint32_t index, Incarnation incarnation) {
  WorkerLink& worker = workers_[index];
  if (worker.sender && worker.incarnation == incarnation)
    AfterSend(index, worker.sender->OnWritable());
}

// A worker that does not accept its messages is lost: missed items cannot be replayed.
void SchedulerService::AfterSend(uint32_t index, const absl::Status& sent) {
  if (sent.ok()) return;
  WorkerLink& worker = workers_[index];
  worker.link->Close(sent);
  OnWorkerClosed(index, worker.incarnation, sent);
}

void SchedulerService::Say(const std::string& event) {
  if (options_.on_event) options_.on_event(event);
}

}  // namespace gangway::scheduler
