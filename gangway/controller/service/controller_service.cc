// Implementation of controller_service.h.
#include "gangway/controller/service/controller_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/clock.h"
#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/base/trace.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/traffic.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::controller {
namespace {

constexpr std::chrono::seconds kStatusLimit{2};
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
}

uint32_t CountIslands(const ControllerConfig& config) {
  uint32_t count = 0;
  for (const wire::Worker& worker : config.workers) count = std::max(count, worker.island() + 1);
  return count;
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
      schedulers_(loop,
                  {.epoch = options_.core.epoch,
                   .islands = CountIslands(options_.core),
                   .remote = options_.core.remote_islands,
                   .silence_max = options_.silence_max},
                  EventsOfSchedulers()),
      compilers_(std::max(1u, options_.core.compiles.compilers)),
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

absl::StatusOr<std::unique_ptr<transport::Endpoint>> ControllerService::Welcome(
    const std::shared_ptr<transport::Link>& link, const wire::Hello& hello) {
  const uint64_t key = hello.role() == wire::ROLE_CLIENT ? next_session_++ : next_key_++;
  switch (hello.role()) {
    case wire::ROLE_CLIENT:
      clients_[SessionId(key)] = {.link = link,
                                  .sender = NewSender(link),
                                  .name = hello.name(),
                                  .wants_ends = hello.wants_ends(),
                                  .owner = Owner(link->peer().certificate, SessionId(key)),
                                  .since = Clock::now()};
      Say(absl::StrCat("session ", key, " opens for ", hello.name()));
      for (const auto wait : {options_.absent_max, options_.welcome_max}) {
        loop_->PostAt(Clock::now() + wait, [this, alive = alive_] {
          if (*alive) WelcomeClients();
        });
      }
      WelcomeClients();
      break;
    case wire::ROLE_SCHEDULER:
      GANGWAY_RETURN_IF_ERROR(schedulers_.Welcome(link, hello, key));
      break;
    case wire::ROLE_COMPILER:
      GANGWAY_RETURN_IF_ERROR(WelcomeCompiler(link, hello, key));
      break;
    case wire::ROLE_TOOL:
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

// How long a client waits for missing workers. A controller that has just started gives them the time to register.
std::chrono::milliseconds ControllerService::AbsenceMax(Clock::time_point now,
                                                        const Seen& seen) const {
  const bool is_starting = now - started_ < options_.welcome_max && core_.AwaitsFirstStart();
  if (seen.topology.workers().empty() || is_starting || seen.awaits_replacement)
    return options_.welcome_max;
  return std::min(options_.absent_max, options_.welcome_max);
}

ControllerService::Seen ControllerService::See(const Owner& owner) const {
  Seen seen;
  core_.FillTopology(seen.topology, owner);
  seen.absent = core_.AbsentWorkers(owner);
  seen.awaits_replacement = core_.AwaitsReplacement(owner, Clock::now() - options_.welcome_max);
  return seen;
}

// Why a client that sees no worker gets no session. `waits_no_more`: its time is over. Nullopt: it may wait.
std::optional<wire::Failure> ControllerService::RefuseClient(const Owner& owner, const Seen& seen,
                                                             bool waits_no_more) const {
  const std::string claimed = core_.ClaimedByOthers(owner);
  if (seen.absent.empty() && claimed.empty()) {
    return wire::MakeFailure(absl::StatusCode::kUnavailable,
                             "all workers of the cluster are being drained",
                             "`gangway drain --undo` takes them back into use.");
  }
  if (!waits_no_more) return std::nullopt;
  const std::string waited = absl::StrCat(options_.welcome_max.count(), " ms");
  if (claimed.empty()) {
    return wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat("these declared workers have been missing for ", waited, ": ", seen.absent),
        "See `gangway status` and the workers' logs.");
  }
  return wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat("no worker was free for ", waited,
                   ", since this cluster isolates its sessions: ", "claimed are ", claimed,
                   seen.absent.empty() ? "" : "; missing are ", seen.absent),
      "Start again once one of these sessions has ended, or raise --session-wait.");
}

void ControllerService::WelcomeClients() {
  std::optional<Seen> of_all;  // unless owners see different workers
  const auto now = Clock::now();
  std::vector<std::pair<SessionId, wire::Failure>> refused;
  for (auto& [session, client] : clients_) {
    if (client.welcomed) continue;
    if (!of_all || options_.core.isolates) of_all = See(client.owner);
    const Seen& seen = *of_all;
    const bool waits_no_more = now - client.since >= AbsenceMax(now, seen);
    if (seen.topology.workers().empty()) {
      auto failure = RefuseClient(client.owner, seen, waits_no_more);
      if (failure) refused.emplace_back(session, *std::move(failure));
    } else if (seen.absent.empty()) {
      SendWelcome(session, client);
    } else if (waits_no_more) {
      Say(absl::StrCat("session ", session, " starts without ",
                       absl::StrJoin(seen.topology.absent(), ", ")));
      SendWelcome(session, client);
    }
  }
  for (auto& [session, failure] : refused) {
    const absl::Status why = wire::ToStatus(failure);
    wire::Frame frame;
    *frame.mutable_hello_reply()->mutable_failure() = std::move(failure);
    (void)clients_[session].link->Send(std::move(frame));  // closing either way
    clients_[session].link->Close(why);
    clients_.erase(session);
    Step(SessionLost{session});
  }
}

void ControllerService::SendWelcome(SessionId session, ClientLink& client) {
  client.welcomed = true;
  NameTrace(TraceNameOf::kSession, session.number(), client.name);
  Step(SessionOpened{session, client.name, client.wants_ends, client.link->peer().certificate});
  wire::Frame frame = NewReply();
  wire::HelloReply* reply = frame.mutable_hello_reply();
  reply->set_session(session.number());
  reply->set_data_token(transport::DataToken(options_.data_key, session));
  core_.FillTopology(*reply->mutable_topology(), client.owner);
  reply->set_isolated(options_.core.isolates);
  (void)client.link->Send(std::move(frame));  // on_closed reports a closed link
}

void ControllerService::OnFrame(wire::Role role, uint64_t key, wire::Frame& frame) {
  CompilerLink* const compiler = role == wire::ROLE_COMPILER ? FindCompiler(key) : nullptr;
  if (compiler != nullptr) compiler->heard = Clock::now();
  if (role == wire::ROLE_CLIENT && frame.has_session_batch()) {
    auto it = clients_.find(SessionId(key));
    if (it == clients_.end() || !it->second.welcomed) return;
    ++frames_received_;
    RefusePrograms(it->first, it->second, frame);
    Step(FromClient{SessionId(key), std::move(*frame.mutable_session_batch())}, frame.sequence());
  } else if (role == wire::ROLE_CLIENT && frame.has_heartbeat()) {
    OnClientBeat(SessionId(key), frame.heartbeat());
  } else if (role == wire::ROLE_CLIENT && frame.has_usage_request()) {
    OnUsageRequest(SessionId(key), frame.usage_request());
  } else if (role == wire::ROLE_CLIENT && frame.has_trace_request()) {
    OnClientTrace(SessionId(key), frame.trace_request());
  } else if (role == wire::ROLE_SCHEDULER) {
    schedulers_.OnFrame(key, frame);
  } else if (compiler != nullptr && frame.has_compile_result()) {
    compiled_ = std::exchange(*frame.mutable_compile_result()->mutable_serialized(), {});
    Step(FromCompiler{std::move(*frame.mutable_compile_result()),
                      static_cast<uint32_t>(compiler - compilers_.data())});
    std::string().swap(compiled_);  // an assignment would keep the memory
  } else if (role == wire::ROLE_TOOL && frame.has_status_request()) {
    OnStatusRequest(key, frame.status_request());
  } else if (role == wire::ROLE_TOOL && frame.has_drain_request()) {
    OnDrainRequest(key, frame.drain_request());
  } else if (role == wire::ROLE_TOOL && frame.has_trace_request()) {
    OnTraceRequest(key);
  } else if (role == wire::ROLE_COMPILER && frame.has_trace_reply()) {
    OnTraceReply(std::move(frame));
  } else if (role == wire::ROLE_TOOL && frame.has_why_request()) {
    OnWhyRequest(key, std::move(*frame.mutable_why_request()));
  }
}

// A client asks for a sign of life: it gets its question back.
void ControllerService::OnClientBeat(SessionId session, const wire::Heartbeat& beat) {
  auto it = clients_.find(session);
  if (it == clients_.end() || !it->second.welcomed) return;
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(beat.time_ns());
  (void)it->second.sender->SendNow(std::move(frame));  // on_closed reports a closed link
}

void ControllerService::OnSchedulerFrame(uint32_t island, wire::Frame& frame) {
  if (frame.has_report_batch()) {
    bool workers_changed = false;
    for (const wire::Report& report : frame.report_batch().reports()) {
      if (report.has_usage()) OnUsage(island, report.usage());
      workers_changed |= report.has_worker_state();
    }
    Step(FromScheduler{island, std::move(*frame.mutable_report_batch())});
    if (workers_changed) WelcomeClients();
  } else if (frame.has_trace_reply()) {
    OnTraceReply(std::move(frame));
  } else if (frame.has_why_reply()) {
    OnWhyReply(island, *frame.mutable_why_reply());
  }
}

void ControllerService::OnPulse(Clock::time_point now, Clock::duration stood_still) {
  WatchCompilers(now, stood_still);
  heap_.OnBeat();
  schedulers_.OnPulse(now, stood_still);
}

void ControllerService::OnClosed(wire::Role role, uint64_t key, const absl::Status& why) {
  if (role == wire::ROLE_CLIENT && clients_.erase(SessionId(key)) != 0) {
    Say(absl::StrCat("session ", key, " ends: ", why.message()));
    held_programs_.EndSession(SessionId(key));
    Step(SessionLost{SessionId(key)});
  } else if (CompilerLink* const compiler =
                 role == wire::ROLE_COMPILER ? FindCompiler(key) : nullptr) {
    OnCompilerClosed(static_cast<uint32_t>(compiler - compilers_.data()), why);
  } else if (role == wire::ROLE_TOOL) {
    tools_.erase(key);
    awaiting_ready_.erase(key);
  } else if (role == wire::ROLE_SCHEDULER) {
    schedulers_.OnClosed(key, why);
  }
}

void ControllerService::OnStatusRequest(uint64_t tool, const wire::StatusRequest& request) {
  const uint64_t limit_ms = std::min(request.ready_limit_ms(), kReadyLimitMaxMs);
  if (limit_ms == 0 || core_.AbsentProcesses().empty()) return Probe({.link = tools_[tool]});
  awaiting_ready_.insert(tool);
  loop_->PostAt(Clock::now() + std::chrono::milliseconds(limit_ms), [this, alive = alive_, tool] {
    if (*alive && awaiting_ready_.erase(tool) != 0) Probe({.link = tools_[tool]});
  });
}

void ControllerService::OnPresence() {
  if (started_up_ && awaiting_ready_.empty()) return;
  const std::string absent = core_.AbsentProcesses();
  if (!std::exchange(started_up_, started_up_ || absent.empty()) && options_.on_absent)
    options_.on_absent(absent);
  if (!absent.empty()) return;
  for (const uint64_t tool : std::exchange(awaiting_ready_, {})) Probe({.link = tools_[tool]});
}

// Asks the schedulers.
void ControllerService::Probe(StatusQuery asked) {
  const uint64_t probe = next_key_++;
  StatusQuery& query = queries_[probe] = std::move(asked);
  for (uint32_t island = 0; island < schedulers_.count(); ++island) {
    if (!schedulers_.is_up(island)) continue;
    ++query.missing;
    wire::IslandItem item;
    item.set_probe(probe);
    schedulers_.Add(island, std::move(item));
  }
  loop_->PostAt(Clock::now() + kStatusLimit, [this, alive = alive_, probe] {
    if (*alive) FinishStatus(probe);
  });
  if (query.missing == 0) FinishStatus(probe);
}

void ControllerService::OnUsage(uint32_t island, const wire::Usage& usage) {
  auto it = queries_.find(usage.probe());
  if (it == queries_.end()) return;
  for (const wire::DeviceUsage& device : usage.devices())
    it->second.devices[DeviceId(device.device())] = device;
  for (int i = 0; i < usage.workers_size(); ++i) {
    auto& worker = it->second.workers[{island, static_cast<uint32_t>(i)}];
    worker.data = usage.workers(i);
    if (i < usage.worker_nodes_size()) worker.nodes = usage.worker_nodes(i);
  }
  if (--it->second.missing == 0) FinishStatus(usage.probe());
}

void ControllerService::FinishStatus(uint64_t probe) {
  auto it = queries_.find(probe);
  if (it == queries_.end()) return;
  StatusQuery query = std::move(it->second);
  queries_.erase(it);
  if (query.session != SessionId()) return FinishUsage(query);
  wire::Frame frame;
  wire::StatusReply* reply = frame.mutable_status_reply();
  core_.FillStatus(Clock::now(), *reply);
  reply->set_messages_received(frames_received_);
  reply->set_messages_sent(frames_sent_);
  (*reply->mutable_counters())["frames_from_clients"] = frames_received_;
  (*reply->mutable_counters())["frames_to_clients"] = frames_sent_;
  const transport::Traffic traffic = transport::TrafficOfProcess();
  (*reply->mutable_counters())["head_frames_sent"] = traffic.frames_sent;
  (*reply->mutable_counters())["head_frame_bytes_sent"] = traffic.bytes_sent;
  (*reply->mutable_counters())["head_frames_received"] = traffic.frames_received;
  (*reply->mutable_counters())["head_frame_bytes_received"] = traffic.bytes_received;
  FillMemory(*reply);
  for (auto& worker : *reply->mutable_workers()) {
    const auto& told =
        query.workers[{worker.state().worker().island(), worker.state().worker().index()}];
    *worker.mutable_data() = told.data;
    worker.set_nodes(told.nodes);
    for (uint32_t device : worker.state().worker().devices()) {
      auto usage = query.devices.find(DeviceId(device));
      if (usage != query.devices.end()) *worker.add_devices() = usage->second;
    }
  }
  if (query.link) (void)query.link->Send(std::move(frame));  // a tool that left needs no answer
}

void ControllerService::OnDrainRequest(uint64_t tool, const wire::DrainRequest& request) {
  wire::Frame frame;
  frame.mutable_drain_reply();
  if (auto failure = core_.CheckDrain(request)) {
    frame.mutable_drain_reply()->set_problem(failure->message());
  } else {
    Say(absl::StrCat(
        "island", request.island(), request.all() ? "" : absl::StrCat("/worker", request.index()),
        request.undo() ? " takes new work again" : " is drained: it takes no new work"));
    Step(Drain{request});
    WelcomeClients();  // clients do not wait for a drained worker
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

void ControllerService::Step(Event event, uint64_t batch) {
  Actions actions;
  const Time now = Clock::now();
  core_.Step(std::move(event), now, actions);
  latency_.Set(!core_.idle());
  Record(actions, batch, now);
  for (auto& [session, out] : actions.to_clients) {
    if (out.has_compiled()) held_programs_.End(session, out.compiled().executable());
    auto it = clients_.find(session);
    if (it != clients_.end()) *it->second.batch.add_events() = std::move(out);
  }
  if (const auto& compiled = actions.compiled)
    schedulers_.Keep(compiled->executable, compiled_, compiled->island_count);
  for (auto& [island, item] : actions.to_islands) {
    if (item.has_load() && !schedulers_.is_remote(island))
      item.mutable_load()->set_serialized(compiled_);
    schedulers_.Add(island, std::move(item));
  }
  for (auto& [compiler, request] : actions.to_compilers) SendCompile(compiler, std::move(request));
  for (const std::string& notice : actions.notices) Say(notice);
  for (const CompilerEnd& end : actions.end_compilers) EndCompiler(end);
  for (const uint32_t spare : actions.start_compilers)
    if (options_.on_spare_wanted) options_.on_spare_wanted(spare);
  for (auto& [session, why] : actions.ended) ended_.emplace_back(session, wire::ToStatus(why));
  if (drained_ && core_.node_count() == 0) FinishDrain();
  if (actions.presence_changed) OnPresence();
  Arm();
}

void ControllerService::Arm() {
  std::optional<Time> next = core_.next_deadline();
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  loop_->PostAt(*next, [this, alive = alive_] {
    if (!*alive) return;
    armed_.reset();
    Step(Tick{});
  });
}

void ControllerService::Say(const std::string& event) {
  if (options_.on_event) options_.on_event(event);
}

}  // namespace gangway::controller
