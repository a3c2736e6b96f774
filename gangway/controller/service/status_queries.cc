// Implementation of status_queries.h.
#include "gangway/controller/service/status_queries.h"

#include <algorithm>
#include <utility>

#include "gangway/base/clock.h"

namespace gangway::controller {

StatusQueries::StatusQueries(EventLoop* loop, Events events, std::chrono::milliseconds limit)
    : loop_(loop), events_(std::move(events)), limit_(limit) {}

void StatusQueries::OnRequest(std::shared_ptr<transport::Link> tool) {
  Ask({.tool = std::move(tool)});
}

void StatusQueries::OnClientRequest(SessionId session, const wire::UsageRequest& request) {
  const auto own = std::ranges::count_if(
      queries_, [session](const auto& each) { return each.second.session == session; });
  if (own < kOfSessionMax) Ask({.session = session, .client_query = request.query()});
}

void StatusQueries::Ask(Query asked) {
  const uint64_t probe = next_probe_++;
  Query& query = queries_[probe] = std::move(asked);
  query.missing = events_.ask(probe);
  loop_->PostAt(Clock::now() + limit_, [this, alive = alive_, probe] {
    if (*alive) Finish(probe);
  });
  if (query.missing == 0) Finish(probe);
}

void StatusQueries::OnUsage(uint32_t island, const wire::Usage& usage) {
  auto it = queries_.find(usage.probe());
  if (it == queries_.end()) return;
  Query& query = it->second;
  for (const wire::DeviceUsage& device : usage.devices())
    query.devices[DeviceId(device.device())] = device;
  for (int i = 0; i < usage.workers_size(); ++i) {
    OfWorker& worker = query.workers[{island, static_cast<uint32_t>(i)}];
    worker.data = usage.workers(i);
    if (i < usage.worker_nodes_size()) worker.nodes = usage.worker_nodes(i);
  }
  if (--query.missing == 0) Finish(usage.probe());
}

void StatusQueries::Finish(uint64_t probe) {
  auto query = queries_.extract(probe);
  if (query.empty()) return;
  query.mapped().session != SessionId() ? AnswerClient(query.mapped()) : AnswerTool(query.mapped());
}

void StatusQueries::AnswerClient(const Query& query) {
  wire::UsageReply reply;
  reply.set_query(query.client_query);
  for (const auto& [device, usage] : query.devices) *reply.add_devices() = usage;
  events_.to_client(query.session, std::move(reply));
}

void StatusQueries::AnswerTool(Query& query) {
  wire::Frame frame;
  wire::StatusReply* reply = frame.mutable_status_reply();
  events_.fill(*reply);
  for (auto& worker : *reply->mutable_workers()) {
    const OfWorker& told =
        query.workers[{worker.state().worker().island(), worker.state().worker().index()}];
    *worker.mutable_data() = told.data;
    worker.set_nodes(told.nodes);
    for (uint32_t device : worker.state().worker().devices()) {
      const auto usage = query.devices.find(DeviceId(device));
      if (usage != query.devices.end()) *worker.add_devices() = usage->second;
    }
  }
  if (query.tool) (void)query.tool->Send(std::move(frame));  // a tool that left needs no answer
}

}  // namespace gangway::controller
