// Implementation of introspection.h.
#include "gangway/controller/core/introspection.h"

namespace gangway::controller {
namespace {

wire::Finding& AddFinding(wire::Finding::What what, wire::WhyReply& reply) {
  wire::Finding& finding = *reply.add_findings();
  finding.set_what(what);
  return finding;
}

void AddFinding(wire::Finding::What what, SessionId session, ArrayHandle array,
                const wire::FailureRef& failure, wire::WhyReply& reply) {
  wire::Finding& finding = AddFinding(what, reply);
  finding.set_session(session.number());
  finding.set_array(NumberOf(array));
  if (failure) *finding.mutable_failure() = *failure;
}

// Returns no ordinal and says why, if the array waits for nothing.
Ordinal FindProducer(const ControllerView& view, const Session& session, ArrayHandle handle,
                     wire::WhyReply& reply) {
  const SessionId id = session.info.id;
  const Array& array = *session.arrays.Find(handle);
  if (auto failure = session.arrays.FailureOf(array)) {
    AddFinding(wire::Finding::FINDING_ARRAY_FAILED, id, handle, failure, reply);
    return {};
  }
  for (const Run& run : array.runs) {
    if (run.count == 0) continue;
    const Ordinal producer = view.storages.ProducerOf(run.storage);
    if (producer != Ordinal()) return producer;
  }
  AddFinding(wire::Finding::FINDING_ARRAY_READY, id, handle, nullptr, reply);
  return {};
}

}  // namespace

void FillStatus(const ControllerView& view, Time now, wire::StatusReply& reply) {
  for (size_t i = 0; i < view.fleet.workers().size(); ++i) {
    const Fleet::Worker& worker = view.fleet.workers()[i];
    wire::WorkerState* state = reply.add_workers()->mutable_state();
    *state->mutable_worker() = worker.declared;
    state->set_up(worker.up);
    state->set_process_id(worker.process_id);
    if (worker.failure) *state->mutable_failure() = *worker.failure;
    *state->mutable_stuck() = worker.stuck;
    state->set_draining(worker.draining());
    view.isolation.FillClaim(i, now, *state);
  }
  view.outbox.FillSchedulers(reply);
  const auto bytes = view.storages.BytesBySession();
  for (const auto& [id, session] : view.sessions) {
    wire::StatusReply::Session* out = reply.add_sessions();
    out->set_session(id.number());
    out->set_name(session.info.name);
    out->set_arrays(session.arrays.size());
    out->set_bytes(bytes.contains(id) ? bytes.at(id) : 0);
    out->set_executables(view.executables.CountOf(id));
    out->set_pending_nodes(view.nodes.PendingOf(id));
    out->set_programs(view.programs.CountOf(id));
  }
  (*reply.mutable_counters())["storages"] = view.storages.size();
  (*reply.mutable_counters())["nodes"] = view.nodes.size();
  view.executables.FillCompilers(reply);
}

bool Explain(const ControllerView& view, wire::WhyRequest& request, Time now,
             wire::WhyReply& reply) {
  if (request.session() != 0 && !view.sessions.contains(SessionId(request.session()))) {
    AddFinding(wire::Finding::FINDING_NO_SESSION, reply).set_session(request.session());
    return false;
  }
  if (request.array() != 0) {
    const ArrayHandle array{request.array()};
    for (const auto& [id, session] : view.sessions) {
      if (request.session() != 0 && SessionId(request.session()) != id) continue;
      if (session.arrays.Find(array) == nullptr) continue;
      request.set_gang(FindProducer(view, session, array, reply).number());
      if (request.gang() != 0) return true;
    }
    if (reply.findings_size() == 0)
      AddFinding(wire::Finding::FINDING_NO_ARRAY, reply).set_array(request.array());
    return false;
  }
  if (request.gang() != 0) {
    const Ordinal gang(request.gang());
    if (view.nodes.Contains(gang)) return true;
    const bool has_ended = gang < view.nodes.next();
    AddFinding(has_ended ? wire::Finding::FINDING_GANG_ENDED : wire::Finding::FINDING_NO_GANG,
               reply)
        .set_gang(request.gang());
    return false;
  }
  view.executables.compiles().Explain(SessionId(request.session()), now, reply);
  return true;
}

void NameWaits(const ControllerView& view, wire::WhyReply& reply) {
  for (wire::Wait& wait : *reply.mutable_waits()) {
    const auto session = view.sessions.find(SessionId(wait.session()));
    if (session != view.sessions.end()) wait.set_client(session->second.info.name);
    const ProgramNode* origin = view.nodes.OriginOf(Ordinal(wait.gang()));
    if (origin == nullptr) continue;
    wait.set_launched_program(origin->program->name);
    wait.set_node(origin->node);
    if (origin->source) wait.set_source(*origin->source);
  }
}

}  // namespace gangway::controller
