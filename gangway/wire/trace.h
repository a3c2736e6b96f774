// This process's flight recorder as frames, in pieces of a bounded size; and one record out of a
// reply. Pure but for reading the ring.
#ifndef GANGWAY_WIRE_TRACE_H_
#define GANGWAY_WIRE_TRACE_H_

#include <string>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

inline constexpr int kTraceWords = 5;  // of a record

// `process`: this process's name for people. At least one frame; the last one says so.
std::vector<Frame> TraceFrames(const TraceRequest& request, const std::string& process);

// How a scheduler that is a process of its own is called there.
std::string SchedulerTraceName(uint32_t island);

// Record `index` of a reply that holds more than that.
TraceRecord TraceRecordAt(const TraceReply& reply, int index);
inline int TraceRecordCount(const TraceReply& reply) { return reply.words_size() / kTraceWords; }

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_TRACE_H_
