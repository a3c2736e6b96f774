// The flight recorder: what this process did last, always on. One bounded ring per process; the
// oldest records are overwritten. `gangway trace` reads the rings of a cluster.
//
// Threading: any thread records, without locks or allocation: one atomic increment, the clock and a
// few stores, some tens of nanoseconds. Reading copies while others go on to write; records that
// are being overwritten are left out. A writer that is stopped in the middle of a record for a
// whole lap of the ring may spoil that one record, and nothing else. Names of things (links,
// programs) are set rarely and under a lock; the oldest are forgotten past a limit.
//
// GANGWAY_TRACE=off, read once, turns recording off: for measuring what it costs.
#ifndef GANGWAY_BASE_TRACE_H_
#define GANGWAY_BASE_TRACE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gangway {

// Numbers are part of the wire format: add, never change. 8 and 11 were used once.
enum class TraceKind : uint8_t {
  kNone = 0,
  kRequest = 1,  // front door: a request was handled; place = its case, value = nanoseconds
  kSubmit = 2,   // client: a batch left; value = its number in the session
  kLower = 3,    // controller: a node was made for island `place`; value = batch number
  kQueue =
      4,  // scheduler of island `place`: a node arrived; value = executable * 8 + wire::Node's kind
  kRelease = 5,        // scheduler of island `place`: a gang has memory and slots
  kDone = 6,           // scheduler of island `place`: a node ended; value = its status code
  kPrepare = 7,        // worker: host-side work of a node is done; place = its NodeKind
  kExecuteBegin = 9,   // worker: device `place` is given a gang
  kExecuteEnd = 10,    // worker: device `place` has finished it
  kUpload = 12,        // worker: a shard's bytes came; place = shard, value = bytes
  kFetch = 13,         // worker: a shard went out; place = shard, value = bytes
  kSend = 14,          // transport: a frame goes out on link `place`; value = bytes
  kReceive = 15,       // transport: frames came in on link `place`; value = bytes
  kCompileBegin = 16,  // compiler; value = request
  kCompileEnd = 17,
};

struct TraceRecord {
  uint64_t time_ns = 0;  // of the steady clock
  TraceKind kind = TraceKind::kNone;
  uint32_t place = 0;    // device, link, island: see the kind
  uint64_t session = 0;  // 0 = unknown here
  uint64_t gang = 0;     // the node's ordinal; 0 = none
  uint64_t value = 0;
};

inline constexpr uint64_t kTraceCapacity = 32768;  // records; 2 MiB per process

void Trace(TraceKind kind, uint32_t place, uint64_t session, uint64_t gang, uint64_t value = 0);
// For whoever has read the clock already.
void TraceAt(std::chrono::steady_clock::time_point when, TraceKind kind, uint32_t place,
             uint64_t session, uint64_t gang, uint64_t value = 0);

enum class TraceNameOf : uint8_t { kLink = 1, kExecutable = 2, kSession = 3 };
void NameTrace(TraceNameOf what, uint64_t id, std::string name);

struct TraceName {
  TraceNameOf what;
  uint64_t id;
  std::string name;
};
struct TraceSnapshot {
  uint64_t recorded = 0;             // since the process started
  std::vector<TraceRecord> records;  // those that are left, oldest first
  std::vector<TraceName> names;
};
TraceSnapshot ReadTrace();

// Tells processes apart, on different hosts too: random, never 0.
uint64_t TraceProcess();

// A new number for a link of this process.
uint32_t NextTraceLink();

}  // namespace gangway

#endif  // GANGWAY_BASE_TRACE_H_
