// Waits that the controller knows: compiles, and the gang that produces an array. Pure queries.
#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"

namespace gangway::controller {

bool Controller::Explain(wire::WhyRequest& request, Time now, wire::WhyReply& reply) const {
  if (request.session() != 0 && !sessions_.contains(SessionId(request.session()))) {
    reply.add_remarks(absl::StrCat("there is no session ", request.session(),
                                   "; `gangway status` lists those that are open"));
    return false;
  }
  if (request.array() != 0) {
    for (const auto& [id, session] : sessions_) {
      if (request.session() != 0 && SessionId(request.session()) != id) continue;
      if (!session.arrays.contains(request.array())) continue;
      request.set_gang(FindProducer(id, request.array(), reply).number());
      if (request.gang() != 0) return true;
    }
    if (reply.remarks_size() == 0)
      reply.add_remarks(absl::StrCat("no session holds an array ", request.array()));
    return false;
  }
  if (request.gang() != 0) {
    if (nodes_.contains(Ordinal(request.gang()))) return true;
    reply.add_remarks(absl::StrCat(
        "gang ", request.gang(),
        Ordinal(request.gang()) < next_ordinal_ ? " has ended" : " does not exist yet"));
    return false;
  }
  compiles_.Explain(SessionId(request.session()), now, reply);
  return true;
}

// Returns no ordinal and adds a remark if the array waits for nothing.
Ordinal Controller::FindProducer(SessionId session, uint64_t handle, wire::WhyReply& reply) const {
  const Array& array = sessions_.at(session).arrays.at(handle);
  if (auto failure = FailureOf(array)) {
    reply.add_remarks(absl::StrCat("array ", handle, " of session ", session,
                                   " is an error: ", failure->message()));
    return {};
  }
  for (const Run& run : array.runs) {
    auto storage = storages_.find(run.storage);
    if (storage != storages_.end() && storage->second.producer != Ordinal())
      return storage->second.producer;
  }
  reply.add_remarks(
      absl::StrCat("array ", handle, " of session ", session, " is ready: it waits for nothing"));
  return {};
}

}  // namespace gangway::controller
