// The flight recorders of a cluster as one file that Perfetto opens (Chrome's JSON trace format).
// Pure. What the file shows is told in docs/reference/trace.md.
#ifndef GANGWAY_CLI_TRACE_FILE_H_
#define GANGWAY_CLI_TRACE_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// Gathers replies, of any processes in any order.
class TraceCollection {
 public:
  struct Process {
    std::string name;
    uint64_t process_id = 0;
    int64_t offset_ns = 0;      // added to its times, to make them the controller's
    uint64_t uncertain_ns = 0;  // half the round trip that the offset was measured with
    uint64_t read_ns = 0;       // when the ring was read, on its own clock
    uint64_t overwritten = 0;   // records that the ring had no room for any more
    std::vector<TraceRecord> records;
    std::map<std::pair<TraceNameOf, uint64_t>, std::string> names;
  };

  void Add(const wire::TraceReply& reply);
  const std::vector<Process>& processes() const { return processes_; }

 private:
  std::vector<Process> processes_;
};

// What is added to a clock that read `time_ns` between `asked_ns` and `answered_ns` of another, to
// make it that other one. 0 where the two may be the same clock.
int64_t ClockOffset(uint64_t asked_ns, uint64_t time_ns, uint64_t answered_ns);

std::string ToPerfetto(const std::vector<TraceCollection::Process>& processes);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TRACE_FILE_H_
