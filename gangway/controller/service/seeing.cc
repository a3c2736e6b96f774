// Requests of tools beyond the status: the flight recorders of all processes, and current waits.
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/trace.h"
#include "gangway/controller/service/controller_service.h"
#include "gangway/wire/trace.h"

namespace gangway::controller {
namespace {

constexpr std::chrono::seconds kTraceLimit{3};
constexpr std::chrono::seconds kWhyLimit{2};

uint64_t NowNs() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

std::string WorkerName(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

}  // namespace

// Every process that is up replies for itself; each reply goes on to the tool, or to the client, as it arrives.
void ControllerService::OnTraceRequest(uint64_t tool) { Trace({.link = tools_[tool]}); }

void ControllerService::Trace(TraceQuery asked) {
  const uint64_t probe = next_key_++;
  TraceQuery& query = traces_[probe] = std::move(asked);
  query.asked_ns = NowNs();
  wire::Frame frame;
  frame.set_epoch(options_.core.epoch);
  frame.mutable_trace_request()->set_probe(probe);
  frame.mutable_trace_request()->set_asker(TraceProcess());
  wire::StatusReply status;
  core_.FillStatus(Clock::now(), status);
  for (const auto& worker : status.workers())
    query.missing.insert(WorkerName(worker.state().worker()));
  for (uint32_t island = 0; island < schedulers_.count(); ++island) {
    schedulers_.Ask(island, frame);
    if (schedulers_.is_remote(island)) query.missing.insert(wire::SchedulerTraceName(island));
  }
  query.missing.insert("compiler");
  for (CompilerLink& compiler : compilers_) {
    if (!compiler.link) continue;
    (void)compiler.link->Send(frame);
    query.missing.insert(compiler.name);
  }
  for (wire::Frame& own : wire::TraceFrames(frame.trace_request(), "controller"))
    OnTraceReply(std::move(own));
  loop_->PostAt(Clock::now() + kTraceLimit, [this, alive = alive_, probe] {
    if (*alive) FinishTrace(probe);
  });
}

void ControllerService::OnTraceReply(wire::Frame frame) {
  auto it = traces_.find(frame.trace_reply().probe());
  if (it == traces_.end()) return;
  const uint64_t probe = it->first;
  wire::TraceReply& reply = *frame.mutable_trace_reply();
  reply.set_asked_ns(it->second.asked_ns);
  reply.set_answered_ns(NowNs());
  if (reply.last()) it->second.missing.erase(reply.process());
  if (it->second.session != SessionId()) KeepSession(it->second, reply);
  SendTrace(it->second, std::move(frame));
  if (it->second.missing.empty()) FinishTrace(probe);
}

void ControllerService::FinishTrace(uint64_t probe) {
  const auto node = traces_.extract(probe);
  if (node.empty()) return;
  const TraceQuery& query = node.mapped();
  wire::Frame frame;
  wire::TraceReply& reply = *frame.mutable_trace_reply();
  reply.set_end(true);
  for (const std::string& name : query.missing) reply.add_missing(name);
  if (query.session != SessionId()) AddExecutableNames(query, reply);
  SendTrace(query, std::move(frame));
}

// A tool or a client that left needs no answer.
void ControllerService::SendTrace(const TraceQuery& query, wire::Frame frame) {
  if (query.link) {
    (void)query.link->Send(std::move(frame));
  } else if (auto client = clients_.find(query.session); client != clients_.end()) {
    (void)client->second.sender->SendNow(std::move(frame));  // on_closed reports a closed link
  }
}

// The schedulers know most waits; those of clients and compiles are known here.
void ControllerService::OnWhyRequest(uint64_t tool, wire::WhyRequest request) {
  const uint64_t probe = next_key_++;
  WhyQuery& query = whys_[probe];
  query.link = tools_[tool];
  request.set_probe(probe);
  const bool all = request.session() == 0 && request.gang() == 0 && request.array() == 0;
  const bool ask = core_.Explain(request, Clock::now(), query.reply);
  if (all) ExplainClients(query.reply);
  for (uint32_t island = 0; ask && island < schedulers_.count(); ++island) {
    query.missing.insert(island);
    wire::Frame frame;
    frame.set_epoch(options_.core.epoch);
    *frame.mutable_why_request() = request;
    schedulers_.Ask(island, frame);
  }
  loop_->PostAt(Clock::now() + kWhyLimit, [this, alive = alive_, probe] {
    if (*alive) FinishWhy(probe);
  });
  if (query.missing.empty()) FinishWhy(probe);
}

void ControllerService::ExplainClients(wire::WhyReply& reply) const {
  for (const auto& [session, client] : clients_) {
    if (client.welcomed) continue;
    wire::Wait& wait = *reply.add_waits();
    wait.set_kind("client");
    wait.set_session(session.number());
    wait.set_program(client.name);
    wait.set_reason(wire::Wait::REASON_WORKERS_ABSENT);
    wait.add_workers(core_.AbsentWorkers(client.owner));
    if (const std::string claimed = core_.ClaimedByOthers(client.owner); !claimed.empty())
      wait.add_workers(absl::StrCat("claimed by others: ", claimed));
    auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - client.since);
    wait.set_waited_ms(static_cast<uint64_t>(waited.count()));
    wait.set_limit_ms(static_cast<uint64_t>(options_.welcome_max.count()));
  }
}

void ControllerService::OnWhyReply(uint32_t island, wire::WhyReply& reply) {
  auto it = whys_.find(reply.probe());
  if (it == whys_.end()) return;
  WhyQuery& query = it->second;
  query.reply.MergeFrom(reply);
  query.missing.erase(island);
  if (query.missing.empty()) FinishWhy(reply.probe());
}

void ControllerService::FinishWhy(uint64_t probe) {
  auto query = whys_.extract(probe);
  if (query.empty() || !query.mapped().link) return;
  wire::Frame frame;
  *frame.mutable_why_reply() = std::move(query.mapped().reply);
  for (uint32_t island : query.mapped().missing)
    frame.mutable_why_reply()->add_missing(absl::StrCat("the scheduler of island ", island));
  (void)query.mapped().link->Send(std::move(frame));  // a tool that left needs no answer
}

}  // namespace gangway::controller
