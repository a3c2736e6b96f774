// The flight recorder: the latest events of this process, always on. Each process has one bounded
// ring, which overwrites its oldest records. `gangway trace` reads the rings of a cluster.
//
// Threading: any thread records, without locks or allocation: one atomic increment, a clock read
// and a few stores, some tens of nanoseconds. A reader copies while writers continue, and leaves
// out records that are being overwritten; of two writers that meet in one slot, a lap of the ring
// apart, both records may be lost. Names (of links, programs) are set rarely,
// under a lock, escaped (shown_name.h); past a limit the oldest are dropped.
//
// GANGWAY_TRACE=off, read once, turns recording off, to measure its cost.
#ifndef GANGWAY_BASE_TRACE_H_
#define GANGWAY_BASE_TRACE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"

namespace gangway {

// The numbers are part of the wire format: add, never change. 8 and 11 are retired.
enum class TraceKind : uint8_t {
  kNone = 0,
  kRequest = 1,  // front door: a request was handled; place = its oneof case, value = nanoseconds
  kSubmit = 2,   // client: a batch left; value = its number in the session
  kLower = 3,    // controller: a node was made for island `place`; value = batch number
  kQueue =
      4,  // scheduler of island `place`: a node arrived; value = executable * 8 + wire::Node's kind
  kRelease = 5,        // scheduler of island `place`: a gang has memory and slots
  kDone = 6,           // scheduler of island `place`: a node ended; value = its status code
  kPrepare = 7,        // worker: host-side work of a node is done; place = its NodeKind
  kExecuteBegin = 9,   // worker: device `place` is given a gang
  kExecuteEnd = 10,    // worker: device `place` has finished it
  kUpload = 12,        // worker: a shard's bytes arrived; place = shard, value = bytes
  kFetch = 13,         // worker: a shard was sent; place = shard, value = bytes
  kSend = 14,          // transport: a frame is sent on link `place`; value = bytes
  kReceive = 15,       // transport: frames arrived on link `place`; value = bytes
  kCompileBegin = 16,  // compiler; value = request
  kCompileEnd = 17,
  // worker: a member on device `place` has come out of a collective, or of several short ones; value = PackSpan of the
  // collective's number in its program, or of how many they were
  kCollective = 18,
  kCollectives = 19,
  kLaunched =
      20,  // controller: a node was made for node `place` of a launched program; value = the program's id
};

// A number below 2^24 and how long something took, up to 18 minutes, in one value.
inline constexpr uint64_t kSpanNsMax = (uint64_t{1} << 40) - 1;
constexpr uint64_t PackSpan(uint32_t number, uint64_t ns) {
  return (uint64_t{number} << 40) | (ns < kSpanNsMax ? ns : kSpanNsMax);
}
constexpr uint32_t SpanNumber(uint64_t value) { return static_cast<uint32_t>(value >> 40); }
constexpr uint64_t SpanNs(uint64_t value) { return value & kSpanNsMax; }

struct TraceRecord {     // as stored and sent: plain numbers
  uint64_t time_ns = 0;  // of the steady clock
  TraceKind kind = TraceKind::kNone;
  uint32_t place = 0;    // device, link, island: see the kind
  uint64_t session = 0;  // 0 = unknown here
  uint64_t gang = 0;     // the node's ordinal; 0 = none
  uint64_t value = 0;
};

inline constexpr uint64_t kTraceCapacity = 32768;  // records; 2 MiB per process

void Trace(TraceKind kind, uint32_t place, SessionId session, Ordinal gang, uint64_t value = 0);
// For callers that have already read the clock.
void TraceAt(Clock::time_point when, TraceKind kind, uint32_t place, SessionId session,
             Ordinal gang, uint64_t value = 0);

enum class TraceNameOf : uint8_t {
  kLink = 1,
  kExecutable = 2,
  kSession = 3,
  kCollective = 4,
  kProgram = 5
};
// The id of a kCollective.
constexpr uint64_t CollectiveNameId(ExecutableId executable, uint32_t number) {
  return (executable.number() << 24) | number;
}
void NameTrace(TraceNameOf what, uint64_t id, std::string name);

struct TraceName {
  TraceNameOf what;
  uint64_t id;
  std::string name;
};
struct TraceSnapshot {
  uint64_t recorded = 0;             // since the process started
  std::vector<TraceRecord> records;  // those still in the ring, oldest first
  std::vector<TraceName> names;
};
TraceSnapshot ReadTrace();

// This process's random id, never 0; it tells processes of different hosts apart too.
uint64_t TraceProcess();

// A new number for a link of this process.
uint32_t NextTraceLink();

}  // namespace gangway

#endif  // GANGWAY_BASE_TRACE_H_
