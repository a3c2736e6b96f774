// The flight recorders of a cluster's processes, gathered from their replies. Pure.
#ifndef GANGWAY_WIRE_TRACE_COLLECTION_H_
#define GANGWAY_WIRE_TRACE_COLLECTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

// Gathers the replies of all processes, in any order.
class TraceCollection {
 public:
  struct Process {
    std::string name;
    uint64_t process_id = 0;
    int64_t offset_ns = 0;      // added to its times to convert them to the controller's clock
    uint64_t uncertain_ns = 0;  // half the round trip that the offset was measured with
    uint64_t read_ns = 0;       // when the ring was read, on its own clock
    uint64_t overwritten = 0;   // records lost because the ring was full
    std::vector<TraceRecord> records;
    std::map<std::pair<TraceNameOf, uint64_t>, std::string> names;
  };

  void Add(const TraceReply& reply);
  const std::vector<Process>& processes() const { return processes_; }

  // The names of executables, of all processes.
  std::map<uint64_t, std::string> ExecutableNames() const;
  // The executable of each gang whose launch was recorded.
  std::map<uint64_t, uint64_t> ExecutablesOfGangs() const;

 private:
  std::vector<Process> processes_;
};

// The offset from a clock that read `time_ns` to another clock, which read `asked_ns` before and
// `answered_ns` after that. 0 if the two may be the same clock.
int64_t ClockOffset(uint64_t asked_ns, uint64_t time_ns, uint64_t answered_ns);

// A gang on one device, on the controller's clock.
struct TraceRun {
  uint64_t gang = 0;
  uint32_t device = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // when the ring was read, unless it has ended
  bool has_ended = false;
};

// The runs that the process recorded, in the order of their ends; those that have not ended come last.
std::vector<TraceRun> RunsOf(const TraceCollection::Process& process);

// 0: the record does not name an executable.
uint64_t ExecutableOf(const TraceRecord& record);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_TRACE_COLLECTION_H_
