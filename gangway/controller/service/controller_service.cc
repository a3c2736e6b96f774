// Implementation of controller_service.h.
#include "gangway/controller/service/controller_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/spin.h"
#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/traffic.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"

namespace gangway::controller {
namespace {

constexpr uint64_t kReadyLimitMaxMs = 86'400'000;  // that a tool may wait for all to be up
constexpr std::chrono::milliseconds kLastAnswers{500};

// Records a step's decisions in the flight recorder. `batch`: the client's number of its batch.
void Record(const Actions& actions, uint64_t batch, Time now) {
  for (const auto& [island, item] : actions.to_islands) {
    if (item.has_node())
      TraceAt(now, TraceKind::kLower, island, SessionId(item.node().session()),
              Ordinal(item.node().ordinal()), batch);
    if (item.has_load())
      NameTrace(TraceNameOf::kExecutable, item.load().executable(), item.load().name());
  }
  if (actions.registered)
    NameTrace(TraceNameOf::kProgram, actions.registered->id, actions.registered->name);
  for (const LaunchedNode& each : actions.launched)
    TraceAt(now, TraceKind::kLaunched, each.node.node, each.session, each.ordinal,
            each.node.program->id);
}

uint32_t CountIslands(const ControllerConfig& config) {
  uint32_t count = 0;
  for (const wire::Worker& worker : config.workers) count = std::max(count, worker.island() + 1);
  return count;
}

std::string WorkerName(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

ControllerOptions WithTokens(ControllerOptions options) {
  if (!options.core.new_token) options.core.new_token = transport::NewDataKey;
  return options;
}

}  // namespace

class ControllerService::LinkEndpoint final : public transport::Endpoint {
 public:
  LinkEndpoint(ControllerService* service, std::shared_ptr<bool> alive, wire::Role role,
               uint64_t key)
      : service_(service), alive_(std::move(alive)), role_(role), key_(key) {}
  void OnFrame(wire::Frame frame) override {
    if (*alive_) service_->OnFrame(role_, key_, frame);
  }
  void OnWritable() override {
    if (*alive_) service_->OnWritable(role_, key_);
  }
  void OnClosed(const absl::Status& why) override {
    if (*alive_) service_->OnClosed(role_, key_, why);
  }

 private:
  ControllerService* const service_;
  const std::shared_ptr<bool> alive_;
  const wire::Role role_;
  const uint64_t key_;
};

ControllerService::ControllerService(EventLoop* loop, ControllerOptions options)
    : loop_(loop),
      options_(WithTokens(std::move(options))),
      core_(options_.core),
      held_programs_(options_.memory),
      clients_(loop, core_,
               {.epoch = options_.core.epoch,
                .isolates = options_.core.isolates,
                .welcome_max = options_.welcome_max,
                .absent_max = options_.absent_max,
                .data_key = options_.data_key},
               EventsOfClients()),
      schedulers_(loop,
                  {.epoch = options_.core.epoch,
                   .islands = CountIslands(options_.core),
                   .remote = options_.core.remote_islands,
                   .silence_max = options_.silence_max},
                  EventsOfSchedulers()),
      compilers_({.epoch = options_.core.epoch,
                  .count = std::max(1u, options_.core.compiles.compilers),
                  .silence_max = options_.silence_max},
                 EventsOfCompilers()),
      status_queries_(loop, EventsOfStatusQueries()),
      trace_queries_(loop, options_.core.epoch, EventsOfTraceQueries()),
      why_queries_(loop, {.epoch = options_.core.epoch, .islands = schedulers_.count()},
                   EventsOfWhyQueries()),
      alive_(std::make_shared<bool>(true)) {
  if (options_.latency_request) latency_.Use(loop_);
  OnPresence();
  pulse_ = std::make_unique<Pulse>(
      loop_, [this](Clock::time_point now, Clock::duration still) { OnPulse(now, still); });
  loop_->AddRoundEnd([this, alive = alive_] {
    if (*alive) Flush();
  });
}

ControllerService::~ControllerService() { *alive_ = false; }

// --- What its parts tell it ---

ClientLinks::Events ControllerService::EventsOfClients() {
  return {.reply = [this] { return NewReply(); },
          .on_opened = [this](SessionOpened opened) { Step(std::move(opened)); },
          .on_lost =
              [this](SessionId session) {
                held_programs_.EndSession(session);
                Step(SessionLost{session});
              },
          .on_ended = [this](SessionId session) { held_programs_.EndSession(session); },
          .say = [this](const std::string& event) { Say(event); }};
}

SchedulerLinks::Events ControllerService::EventsOfSchedulers() {
  return {
      .on_frame = [this](uint32_t island, wire::Frame& frame) { OnSchedulerFrame(island, frame); },
      .terms = [this](uint32_t island) { return NewTerms(island); },
      .on_up = [this](uint32_t island,
                      uint64_t process_id) { Step(SchedulerUp{island, process_id}); },
      .on_down = [this](uint32_t island,
                        const std::string& why) { Step(SchedulerDown{island, why}); },
      .on_silent =
          [this](uint64_t process_id) {
            if (options_.on_silent) options_.on_silent(process_id);
          },
      .say = [this](const std::string& event) { Say(event); }};
}

CompilerLinks::Events ControllerService::EventsOfCompilers() {
  return {.reply = [this] { return NewReply(); },
          .on_up = [this](uint32_t compiler,
                          uint64_t process_id) { Step(CompilerUp{process_id, compiler}); },
          .on_down = [this](uint32_t compiler) { Step(CompilerDown{compiler}); },
          .on_frame = [this](uint32_t compiler,
                             wire::Frame& frame) { OnCompilerFrame(compiler, frame); },
          // Answered in a later round or, ahead of CompilerDown, sent to the next compiler.
          .on_not_sent =
              [this](CompileNotSent not_sent) {
                if (not_sent.link_ends) return Step(std::move(not_sent));
                loop_->Post([this, alive = alive_, not_sent = std::move(not_sent)] {
                  if (*alive) Step(not_sent);
                });
              },
          .on_silent =
              [this](uint64_t process_id) {
                if (options_.on_silent) options_.on_silent(process_id);
              },
          .say = [this](const std::string& event) { Say(event); }};
}

StatusQueries::Events ControllerService::EventsOfStatusQueries() {
  return {.ask = [this](uint64_t probe) { return AskForUsage(probe); },
          .fill = [this](wire::StatusReply& reply) { FillStatus(reply); },
          .to_client =
              [this](SessionId session, wire::UsageReply reply) {
                wire::SessionEvent event;
                *event.mutable_usage() = std::move(reply);
                clients_.Add(session, std::move(event));
              }};
}

TraceQueries::Events ControllerService::EventsOfTraceQueries() {
  return {.ask = [this](const wire::Frame& question) { return AskForTraces(question); },
          .to_client = [this](SessionId session,
                              wire::Frame frame) { clients_.SendNow(session, std::move(frame)); }};
}

WhyQueries::Events ControllerService::EventsOfWhyQueries() {
  return {.explain =
              [this](wire::WhyRequest& request, wire::WhyReply& reply) {
                const bool all =
                    request.session() == 0 && request.gang() == 0 && request.array() == 0;
                const bool ask = core_.Explain(request, Clock::now(), reply);
                if (all) clients_.Explain(reply);
                return ask;
              },
          .ask = [this](uint32_t island,
                        const wire::Frame& question) { schedulers_.Ask(island, question); },
          .complete = [this](wire::WhyReply& reply) { core_.NameWaits(reply); }};
}

// --- Links ---

absl::StatusOr<std::unique_ptr<transport::Endpoint>> ControllerService::Welcome(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  uint64_t key = next_key_;  // of a client: its session
  switch (hello.role()) {
    case wire::ROLE_CLIENT:
      key = clients_.Welcome(link, hello).number();
      break;
    case wire::ROLE_SCHEDULER:
      ++next_key_;
      GANGWAY_RETURN_IF_ERROR(schedulers_.Welcome(link, hello, key));
      break;
    case wire::ROLE_COMPILER:
      ++next_key_;
      GANGWAY_RETURN_IF_ERROR(compilers_.Welcome(link, hello, key));
      break;
    case wire::ROLE_TOOL:
      ++next_key_;
      GANGWAY_RETURN_IF_ERROR(link->Send(NewReply()));
      tools_[key] = link;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("the controller does not serve role ", hello.role()));
  }
  return std::make_unique<LinkEndpoint>(this, alive_, hello.role(), key);
}

wire::Frame ControllerService::NewReply() const {
  wire::Frame reply;
  reply.set_epoch(options_.core.epoch);
  reply.mutable_hello_reply()->set_epoch(options_.core.epoch);
  reply.mutable_hello_reply()->set_build_version(wire::kBuildVersion);
  reply.mutable_hello_reply()->set_protocol_version(wire::kProtocolVersion);
  reply.mutable_hello_reply()->set_latency_request(options_.latency_request);
  return reply;
}

wire::Frame ControllerService::NewTerms(uint32_t island) const {
  wire::Frame reply = NewReply();
  reply.mutable_hello_reply()->set_data_key(options_.data_key);
  *reply.mutable_hello_reply()->mutable_island() = options_.terms;
  core_.FillTerms(island, *reply.mutable_hello_reply()->mutable_island());
  return reply;
}

wire::HelloReply ControllerService::Terms(uint32_t island) const {
  return NewTerms(island).hello_reply();
}

void ControllerService::OnFrame(wire::Role role, uint64_t key, wire::Frame& frame) {
  if (role == wire::ROLE_CLIENT) return OnClientFrame(SessionId(key), frame);
  if (role == wire::ROLE_SCHEDULER) return schedulers_.OnFrame(key, frame);
  if (role == wire::ROLE_COMPILER) return compilers_.OnFrame(key, frame);
  if (role == wire::ROLE_TOOL) return OnToolFrame(key, frame);
}

void ControllerService::OnClientFrame(SessionId session, wire::Frame& frame) {
  if (!clients_.IsWelcome(session)) return;
  if (frame.has_session_batch()) {
    clients_.NoteReceived();
    RefusePrograms(session, frame);
    Step(FromClient{session, std::move(*frame.mutable_session_batch())}, frame.sequence());
  } else if (frame.has_heartbeat()) {
    clients_.OnBeat(session, frame.heartbeat());
  } else if (frame.has_usage_request()) {
    status_queries_.OnClientRequest(session, frame.usage_request());
  } else if (frame.has_trace_request()) {
    trace_queries_.OnClientRequest(session, frame.trace_request());
  }
}

void ControllerService::OnToolFrame(uint64_t tool, wire::Frame& frame) {
  if (frame.has_status_request()) {
    OnStatusRequest(tool, frame.status_request());
  } else if (frame.has_drain_request()) {
    OnDrainRequest(tool, frame.drain_request());
  } else if (frame.has_trace_request()) {
    trace_queries_.OnRequest(tools_[tool]);
  } else if (frame.has_why_request()) {
    why_queries_.OnRequest(tools_[tool], std::move(*frame.mutable_why_request()));
  }
}

void ControllerService::OnCompilerFrame(uint32_t compiler, wire::Frame& frame) {
  if (frame.has_trace_reply()) return trace_queries_.OnReply(std::move(frame));
  if (!frame.has_compile_result()) return;
  compiled_ = std::exchange(*frame.mutable_compile_result()->mutable_serialized(), {});
  Step(FromCompiler{std::move(*frame.mutable_compile_result()), compiler});
  std::string().swap(compiled_);  // an assignment would keep the memory
}

void ControllerService::OnSchedulerFrame(uint32_t island, wire::Frame& frame) {
  if (frame.has_report_batch()) {
    bool workers_changed = false;
    for (const wire::Report& report : frame.report_batch().reports()) {
      if (report.has_usage()) status_queries_.OnUsage(island, report.usage());
      workers_changed |= report.has_worker_state();
    }
    Step(FromScheduler{island, std::move(*frame.mutable_report_batch())});
    if (workers_changed) clients_.WelcomeAll();
  } else if (frame.has_trace_reply()) {
    trace_queries_.OnReply(std::move(frame));
  } else if (frame.has_why_reply()) {
    why_queries_.OnReply(island, frame.why_reply());
  }
}

void ControllerService::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  compilers_.OnPulse(now, stood_still);
  heap_.OnBeat();
  schedulers_.OnPulse(now, stood_still);
}

void ControllerService::OnWritable(wire::Role role, uint64_t key) {
  if (role == wire::ROLE_CLIENT) {
    clients_.OnWritable(SessionId(key));
  } else if (role == wire::ROLE_SCHEDULER) {
    schedulers_.OnWritable(key);
  } else if (role == wire::ROLE_COMPILER) {
    compilers_.OnWritable(key);
  }
}

void ControllerService::OnClosed(wire::Role role, uint64_t key, const absl::Status& why) {
  if (role == wire::ROLE_CLIENT) {
    clients_.OnClosed(SessionId(key), why);
  } else if (role == wire::ROLE_SCHEDULER) {
    schedulers_.OnClosed(key, why);
  } else if (role == wire::ROLE_COMPILER) {
    compilers_.OnClosed(key, why);
  } else if (role == wire::ROLE_TOOL) {
    tools_.erase(key);
    awaiting_ready_.erase(key);
  }
}

// --- Tools ---

void ControllerService::OnStatusRequest(uint64_t tool, const wire::StatusRequest& request) {
  const uint64_t limit_ms = std::min(request.ready_limit_ms(), kReadyLimitMaxMs);
  if (limit_ms == 0 || core_.AbsentProcesses().empty())
    return status_queries_.OnRequest(tools_[tool]);
  awaiting_ready_.insert(tool);
  loop_->PostAt(Clock::now() + std::chrono::milliseconds(limit_ms), [this, alive = alive_, tool] {
    if (*alive && awaiting_ready_.erase(tool) != 0) status_queries_.OnRequest(tools_[tool]);
  });
}

void ControllerService::OnPresence() {
  if (started_up_ && awaiting_ready_.empty()) return;
  const std::string absent = core_.AbsentProcesses();
  if (!std::exchange(started_up_, started_up_ || absent.empty()) && options_.on_absent)
    options_.on_absent(absent);
  if (!absent.empty()) return;
  for (const uint64_t tool : std::exchange(awaiting_ready_, {}))
    status_queries_.OnRequest(tools_[tool]);
}

uint32_t ControllerService::AskForUsage(uint64_t probe) {
  uint32_t asked = 0;
  for (uint32_t island = 0; island < schedulers_.count(); ++island) {
    if (!schedulers_.is_up(island)) continue;
    ++asked;
    wire::IslandItem item;
    item.set_probe(probe);
    schedulers_.Add(island, std::move(item));
  }
  return asked;
}

std::set<std::string> ControllerService::AskForTraces(const wire::Frame& question) {
  std::set<std::string> asked = compilers_.Ask(question);
  asked.insert("compiler");
  for (uint32_t island = 0; island < schedulers_.count(); ++island) {
    schedulers_.Ask(island, question);
    if (schedulers_.is_remote(island)) asked.insert(wire::SchedulerTraceName(island));
  }
  for (const wire::Worker& worker : options_.core.workers) asked.insert(WorkerName(worker));
  return asked;
}

void ControllerService::FillStatus(wire::StatusReply& reply) const {
  core_.FillStatus(Clock::now(), reply);
  const ClientLinks::Frames& frames = clients_.frames();
  reply.set_messages_received(frames.received);
  reply.set_messages_sent(frames.sent);
  auto& counters = *reply.mutable_counters();
  counters["frames_from_clients"] = frames.received;
  counters["frames_to_clients"] = frames.sent;
  const transport::Traffic traffic = transport::TrafficOfProcess();
  counters["head_frames_sent"] = traffic.frames_sent;
  counters["head_frame_bytes_sent"] = traffic.bytes_sent;
  counters["head_frames_received"] = traffic.frames_received;
  counters["head_frame_bytes_received"] = traffic.bytes_received;
  FillMemory(reply);
}

void ControllerService::OnDrainRequest(uint64_t tool, const wire::DrainRequest& request) {
  wire::Frame frame;
  frame.mutable_drain_reply();
  if (auto failure = core_.CheckDrain(request)) {
    *frame.mutable_drain_reply()->mutable_failure() = *std::move(failure);
  } else {
    Say(absl::StrCat(
        "island", request.island(), request.all() ? "" : absl::StrCat("/worker", request.index()),
        request.undo() ? " takes new work again" : " is drained: it takes no new work"));
    Step(Drain{request});
    clients_.WelcomeAll();  // clients do not wait for a drained worker
  }
  if (tools_[tool]) (void)tools_[tool]->Send(std::move(frame));  // a tool that left needs no answer
}

void ControllerService::DrainAll(std::function<void()> done) {
  drained_ = std::move(done);
  Step(controller::DrainAll{});
}

// After a node's end, its result may still be on its way to the client or unread there.
void ControllerService::FinishDrain() {
  auto done = std::exchange(drained_, nullptr);
  if (clients_.empty()) return done();
  loop_->PostAt(Clock::now() + kLastAnswers, std::move(done));
}

// --- Steps of the core ---

void ControllerService::Step(Event event, uint64_t batch) {
  Actions actions;
  const Time now = Clock::now();
  core_.Step(std::move(event), now, actions);
  latency_.Set(!core_.idle());
  if (!core_.idle()) LoopWork::Note();
  Record(actions, batch, now);
  for (auto& [session, out] : actions.to_clients) {
    if (out.has_compiled())
      held_programs_.End(session, ExecutableHandle(out.compiled().executable()));
    clients_.Add(session, std::move(out));
  }
  if (const auto& compiled = actions.compiled)
    schedulers_.Keep(compiled->executable, compiled_, compiled->island_count);
  for (auto& [island, item] : actions.to_islands) {
    if (item.has_load() && !schedulers_.is_remote(island))
      item.mutable_load()->set_serialized(compiled_);
    schedulers_.Add(island, std::move(item));
  }
  for (auto& [compiler, request] : actions.to_compilers)
    compilers_.Send(compiler, std::move(request));
  for (const std::string& notice : actions.notices) Say(notice);
  for (const CompilerEnd& end : actions.end_compilers) compilers_.End(end);
  for (const uint32_t spare : actions.start_compilers)
    if (options_.on_spare_wanted) options_.on_spare_wanted(spare);
  for (auto& [session, why] : actions.ended) clients_.End(session, wire::ToStatus(why));
  if (drained_ && core_.node_count() == 0) FinishDrain();
  if (actions.presence_changed) OnPresence();
  Arm();
}

void ControllerService::Arm() {
  std::optional<Time> next = core_.next_deadline();
  if (next) deadline_.SetBy(*next);
}

void ControllerService::Flush() {
  schedulers_.Exchange();
  schedulers_.Flush();
  clients_.Flush();
  if (schedulers_.has_items()) loop_->Post([] {});  // of a session that ended here: another round
}

void ControllerService::Say(const std::string& event) {
  if (options_.on_event) options_.on_event(event);
}

}  // namespace gangway::controller
