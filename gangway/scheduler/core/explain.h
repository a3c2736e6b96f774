// Which worker, gang or resource each node of an island waits for. Only looks. Of several reasons, a node reports the
// one that it meets first.
#ifndef GANGWAY_SCHEDULER_CORE_EXPLAIN_H_
#define GANGWAY_SCHEDULER_CORE_EXPLAIN_H_

#include "gangway/scheduler/core/view.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

// What nodes and workers wait for; for a gang, the chain of waits behind it.
void Explain(const View& view, const wire::WhyRequest& request, wire::WhyReply& reply);

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_EXPLAIN_H_
