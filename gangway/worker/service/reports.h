// What a worker tells the scheduler of itself, beside the reports of its core: what memory it uses, which members wait,
// and sessions whose sums it found broken. A round of the event loop has one frame for all of it and for the core's.
//
// Threading: of the event loop.
#ifndef GANGWAY_WORKER_SERVICE_REPORTS_H_
#define GANGWAY_WORKER_SERVICE_REPORTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/identity.h"

namespace gangway::worker {

class Reports {
 public:
  struct Options {
    Identity identity;
    std::function<void(wire::Frame)> send;
    std::function<void()> on_added;      // a report waits: Flush is to be called in this round
    std::function<wire::Usage()> usage;  // what it is now, without a probe
  };
  explicit Reports(Options options);

  // A report that is to be filled in.
  wire::Report& Add();
  void AddUsage(uint64_t probe);  // 0: nothing asked for it
  // Unless the bytes that are held and those that were moved are the same as at the last call.
  void AddUsageIfChanged();
  // The session's sums of memory are not right, as `found` says: it ends.
  void AddBroken(SessionId session, const std::string& found);

  // Those of the core, with those that wait.
  void Send(wire::ReportBatch batch);
  // At the end of the round: those that still wait.
  void Flush();

 private:
  const Options options_;
  wire::ReportBatch waiting_;
  uint64_t reported_bytes_ = 0;
  std::string reported_data_;  // serialized DataBytes
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_REPORTS_H_
