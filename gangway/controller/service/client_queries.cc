// Questions of clients: the devices' memory, and what the flight recorders hold of their own session.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "gangway/controller/service/controller_service.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/trace_collection.h"

namespace gangway::controller {
namespace {

// Under way at once, for one session. The client library asks one at a time; what exceeds the limit is not answered.
constexpr int kUsagesMax = 4;
constexpr int kTracesMax = 1;

template <typename Queries>
int64_t CountOf(SessionId session, const Queries& queries) {
  return std::count_if(queries.begin(), queries.end(),
                       [session](const auto& each) { return each.second.session == session; });
}

}  // namespace

void ControllerService::OnUsageRequest(SessionId session, const wire::UsageRequest& request) {
  auto client = clients_.find(session);
  if (client == clients_.end() || !client->second.welcomed) return;
  if (CountOf(session, queries_) >= kUsagesMax) return;
  Probe({.session = session, .client_query = request.query()});
}

void ControllerService::FinishUsage(const StatusQuery& query) {
  auto client = clients_.find(query.session);
  if (client == clients_.end()) return;
  wire::UsageReply& reply = *client->second.batch.add_events()->mutable_usage();
  reply.set_query(query.client_query);
  for (const auto& [device, usage] : query.devices) *reply.add_devices() = usage;
}

// The request's own session is ignored: a client is told of the session of its link.
void ControllerService::OnClientTrace(SessionId session, const wire::TraceRequest& request) {
  auto client = clients_.find(session);
  if (client == clients_.end() || !client->second.welcomed) return;
  if (CountOf(session, traces_) >= kTracesMax) return;
  Trace({.session = session, .client_query = request.probe()});
}

// Removes from `reply` all that is not the session's. The controller's own records come first and tell its gangs, which
// are all that a worker's records name. Names of executables wait for the end, when all launches are known.
void ControllerService::KeepSession(TraceQuery& query, wire::TraceReply& reply) {
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

void ControllerService::AddExecutableNames(const TraceQuery& query, wire::TraceReply& reply) {
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
