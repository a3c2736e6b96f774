// What a member's collectives leave in the flight recorder (base/trace.h). A collective of kOwn or longer has a record
// of its own. Shorter ones share records, each of a run of them that is at least kRun long or the last: so all are
// counted, and a loop of scalar reductions neither pays for a record each nor drives all else out of the ring.
//
// Threading: one thread at a time, the member's.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_FLIGHT_RECORD_H_
#define GANGWAY_COLLECTIVE_EXECUTION_FLIGHT_RECORD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/trace.h"

namespace gangway::collective {

class FlightRecord {
 public:
  static constexpr std::chrono::microseconds kOwn{250};
  static constexpr std::chrono::microseconds kRun{1000};

  // `device`: its id in the cluster.
  FlightRecord(uint32_t device, uint64_t gang) : device_(device), gang_(gang) {}
  ~FlightRecord() { EndRun(); }
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  void Add(uint32_t number, Clock::time_point began, Clock::time_point ended) {
    if (ended - began >= kOwn) {
      EndRun();
      return Write(TraceKind::kCollective, number, began, ended);
    }
    if (count_++ == 0) first_ = began;
    last_ = ended;
    if (last_ - first_ >= kRun) EndRun();
  }

 private:
  void EndRun() {
    if (count_ != 0) Write(TraceKind::kCollectives, count_, first_, last_);
    count_ = 0;
  }
  void Write(TraceKind kind, uint32_t number, Clock::time_point began, Clock::time_point ended) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(ended - began).count();
    TraceAt(ended, kind, device_, {}, Ordinal(gang_),
            PackSpan(number, static_cast<uint64_t>(std::max<int64_t>(ns, 0))));
  }

  const uint32_t device_;
  const uint64_t gang_;
  uint32_t count_ = 0;  // of the run
  Clock::time_point first_;
  Clock::time_point last_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_FLIGHT_RECORD_H_
