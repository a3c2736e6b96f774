// Implementation of seeing.h.
#include "gangway/controller/core/seeing.h"

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

// Returns no ordinal and adds a remark if the array waits for nothing.
Ordinal FindProducer(const ControllerView& view, const Session& session, uint64_t handle,
                     wire::WhyReply& reply) {
  const SessionId id = session.info.id;
  const Array& array = *session.arrays.Find(handle);
  if (auto failure = session.arrays.FailureOf(array)) {
    reply.add_remarks(
        absl::StrCat("array ", handle, " of session ", id, " is an error: ", failure->message()));
    return {};
  }
  for (const Run& run : array.runs) {
    if (run.count == 0) continue;
    const Ordinal producer = view.storages.ProducerOf(run.storage);
    if (producer != Ordinal()) return producer;
  }
  reply.add_remarks(
      absl::StrCat("array ", handle, " of session ", id, " is ready: it waits for nothing"));
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
  }
  (*reply.mutable_counters())["storages"] = view.storages.size();
  (*reply.mutable_counters())["nodes"] = view.nodes.size();
  view.executables.FillCompilers(reply);
}

bool Explain(const ControllerView& view, wire::WhyRequest& request, Time now,
             wire::WhyReply& reply) {
  if (request.session() != 0 && !view.sessions.contains(SessionId(request.session()))) {
    reply.add_remarks(absl::StrCat("there is no session ", request.session(),
                                   "; `gangway status` lists those that are open"));
    return false;
  }
  if (request.array() != 0) {
    for (const auto& [id, session] : view.sessions) {
      if (request.session() != 0 && SessionId(request.session()) != id) continue;
      if (session.arrays.Find(request.array()) == nullptr) continue;
      request.set_gang(FindProducer(view, session, request.array(), reply).number());
      if (request.gang() != 0) return true;
    }
    if (reply.remarks_size() == 0)
      reply.add_remarks(absl::StrCat("no session holds an array ", request.array()));
    return false;
  }
  if (request.gang() != 0) {
    const Ordinal gang(request.gang());
    if (view.nodes.Contains(gang)) return true;
    reply.add_remarks(absl::StrCat(
        "gang ", gang, gang < view.nodes.next() ? " has ended" : " does not exist yet"));
    return false;
  }
  view.executables.compiles().Explain(SessionId(request.session()), now, reply);
  return true;
}

}  // namespace gangway::controller
