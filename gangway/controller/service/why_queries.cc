// Implementation of why_queries.h.
#include "gangway/controller/service/why_queries.h"

#include <utility>

#include "gangway/base/clock.h"

namespace gangway::controller {

WhyQueries::WhyQueries(EventLoop* loop, const Options& options, Events events)
    : loop_(loop), options_(options), events_(std::move(events)) {}

void WhyQueries::OnRequest(std::shared_ptr<transport::Link> tool, wire::WhyRequest request) {
  const uint64_t probe = next_probe_++;
  Query& query = queries_[probe];
  query.tool = std::move(tool);
  request.set_probe(probe);
  const bool ask = events_.explain(request, query.reply);
  for (uint32_t island = 0; ask && island < options_.islands; ++island) {
    query.missing.insert(island);
    wire::Frame frame;
    frame.set_epoch(options_.epoch);
    *frame.mutable_why_request() = request;
    events_.ask(island, frame);
  }
  loop_->PostAt(Clock::now() + options_.limit, [this, alive = alive_, probe] {
    if (*alive) Finish(probe);
  });
  if (query.missing.empty()) Finish(probe);
}

void WhyQueries::OnReply(uint32_t island, const wire::WhyReply& reply) {
  const auto it = queries_.find(reply.probe());
  if (it == queries_.end()) return;
  Query& query = it->second;
  query.reply.MergeFrom(reply);
  query.missing.erase(island);
  if (query.missing.empty()) Finish(reply.probe());
}

void WhyQueries::Finish(uint64_t probe) {
  auto query = queries_.extract(probe);
  if (query.empty() || !query.mapped().tool) return;
  wire::Frame frame;
  events_.complete(query.mapped().reply);
  *frame.mutable_why_reply() = std::move(query.mapped().reply);
  for (const uint32_t island : query.mapped().missing)
    frame.mutable_why_reply()->add_missing_islands(island);
  (void)query.mapped().tool->Send(std::move(frame));  // a tool that left needs no answer
}

}  // namespace gangway::controller
