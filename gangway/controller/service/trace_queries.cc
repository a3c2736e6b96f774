// Implementation of trace_queries.h.
#include "gangway/controller/service/trace_queries.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/trace.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/trace_collection.h"

namespace gangway::controller {
namespace {

uint64_t NowNs() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

}  // namespace

TraceQueries::TraceQueries(EventLoop* loop, uint64_t epoch, Events events,
                           std::chrono::milliseconds limit)
    : loop_(loop), epoch_(epoch), events_(std::move(events)), limit_(limit) {}

void TraceQueries::OnRequest(std::shared_ptr<transport::Link> tool) {
  Ask({.tool = std::move(tool)});
}

void TraceQueries::OnClientRequest(SessionId session, const wire::TraceRequest& request) {
  const auto is_own = [session](const auto& each) { return each.second.session == session; };
  if (std::ranges::any_of(queries_, is_own)) return;
  Ask({.session = session, .client_query = request.probe()});
}

void TraceQueries::Ask(Query asked) {
  const uint64_t probe = next_probe_++;
  Query& query = queries_[probe] = std::move(asked);
  query.asked_ns = NowNs();
  wire::Frame question;
  question.set_epoch(epoch_);
  question.mutable_trace_request()->set_probe(probe);
  question.mutable_trace_request()->set_asker(TraceProcess());
  query.missing = events_.ask(question);
  for (wire::Frame& own : wire::TraceFrames(question.trace_request(), "controller"))
    OnReply(std::move(own));
  loop_->PostAt(Clock::now() + limit_, [this, alive = alive_, probe] {
    if (*alive) Finish(probe);
  });
}

void TraceQueries::OnReply(wire::Frame frame) {
  auto it = queries_.find(frame.trace_reply().probe());
  if (it == queries_.end()) return;
  const uint64_t probe = it->first;
  wire::TraceReply& reply = *frame.mutable_trace_reply();
  reply.set_asked_ns(it->second.asked_ns);
  reply.set_answered_ns(NowNs());
  if (reply.last()) it->second.missing.erase(reply.process());
  if (it->second.session != SessionId()) KeepSession(it->second, reply);
  Send(it->second, std::move(frame));
  if (it->second.missing.empty()) Finish(probe);
}

void TraceQueries::Finish(uint64_t probe) {
  const auto node = queries_.extract(probe);
  if (node.empty()) return;
  const Query& query = node.mapped();
  wire::Frame frame;
  wire::TraceReply& reply = *frame.mutable_trace_reply();
  reply.set_end(true);
  for (const std::string& name : query.missing) reply.add_missing(name);
  if (query.session != SessionId()) AddExecutableNames(query, reply);
  Send(query, std::move(frame));
}

void TraceQueries::Send(const Query& query, wire::Frame frame) {
  if (query.session != SessionId()) {
    events_.to_client(query.session, std::move(frame));
  } else if (query.tool) {
    (void)query.tool->Send(std::move(frame));  // a tool that left needs no answer
  }
}

// Removes from `reply` all that is not the session's. The controller's own records come first and tell its gangs, which
// are all that a worker's records name. Names of executables wait for the end, when all launches are known.
void TraceQueries::KeepSession(Query& query, wire::TraceReply& reply) {
  std::vector<uint64_t> words;
  for (int i = 0; i < wire::TraceRecordCount(reply); ++i) {
    const TraceRecord record = wire::TraceRecordAt(reply, i);
    if (record.session != 0 && record.session != query.session.number()) continue;
    if (record.session != 0 && record.gang != 0) query.gangs.insert(record.gang);
    if (record.session == 0 && !query.gangs.contains(record.gang)) continue;
    if (const uint64_t executable = wire::ExecutableOf(record))
      query.executables.insert(executable);
    const auto* const first = reply.words().data() + ptrdiff_t{i} * wire::kTraceWords;
    words.insert(words.end(), first, first + wire::kTraceWords);
  }
  for (auto& name : *reply.mutable_names()) {
    if (name.what() == static_cast<uint32_t>(TraceNameOf::kExecutable))
      query.executable_names[name.id()] = std::move(*name.mutable_name());
  }
  reply.mutable_words()->Assign(words.begin(), words.end());
  reply.clear_names();
  reply.clear_recorded();
  reply.set_probe(query.client_query);
}

void TraceQueries::AddExecutableNames(const Query& query, wire::TraceReply& reply) {
  reply.set_probe(query.client_query);
  for (uint64_t executable : query.executables) {
    auto known = query.executable_names.find(executable);
    if (known == query.executable_names.end()) continue;
    wire::TraceReply::Name& name = *reply.add_names();
    name.set_what(static_cast<uint32_t>(TraceNameOf::kExecutable));
    name.set_id(executable);
    name.set_name(known->second);
  }
}

}  // namespace gangway::controller
