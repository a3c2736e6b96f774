// Converts the flight recorders of a cluster to one file for Perfetto (Chrome's JSON trace format).
// Pure. docs/reference/trace.md describes the file.
#ifndef GANGWAY_CLI_TRACE_FILE_H_
#define GANGWAY_CLI_TRACE_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gangway/base/trace.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

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

  void Add(const wire::TraceReply& reply);
  const std::vector<Process>& processes() const { return processes_; }

 private:
  std::vector<Process> processes_;
};

// The offset from a clock that read `time_ns` to another clock, which read `asked_ns` before and
// `answered_ns` after that. 0 if the two may be the same clock.
int64_t ClockOffset(uint64_t asked_ns, uint64_t time_ns, uint64_t answered_ns);

std::string ToPerfetto(const std::vector<TraceCollection::Process>& processes);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TRACE_FILE_H_
