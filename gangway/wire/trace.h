// Encodes this process's flight recorder as frames of bounded size, and decodes records from a
// reply. Pure except for reading the ring.
#ifndef GANGWAY_WIRE_TRACE_H_
#define GANGWAY_WIRE_TRACE_H_

#include <string>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

inline constexpr int kTraceWords = 5;  // per record

// `process`: this process's name for people. Returns at least one frame; the last one has `last`
// set.
std::vector<Frame> TraceFrames(const TraceRequest& request, const std::string& process);

// Without records: of a role whose process has answered under another name.
Frame NoTraceFrame(const TraceRequest& request, const std::string& process);

// The name there of a scheduler that is its own process.
std::string SchedulerTraceName(uint32_t island);

// Record `index` of `reply`; requires index < TraceRecordCount(reply).
TraceRecord TraceRecordAt(const TraceReply& reply, int index);
inline int TraceRecordCount(const TraceReply& reply) { return reply.words_size() / kTraceWords; }

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_TRACE_H_
