// The outputs of programs that settle their results only when they have ended: a program that goes on after a failed
// host callback (host_caller.h) makes outputs that no later program may read. Of each position, the outputs are known
// when ExecuteOn returns, and the program may have ended before that.
//
// Threading: any thread.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LATE_RESULTS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LATE_RESULTS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/mutex.h"
#include "gangway/device/device.h"

namespace gangway::worker {

class LateResults {
 public:
  using Buffers = std::vector<std::unique_ptr<device::Buffer>>;

  explicit LateResults(size_t positions) : late_(positions) {}

  // Each once per position. The second of the two returns the outputs: the results can be settled.
  std::optional<Buffers> NoteOutputs(size_t position, Buffers outputs) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (late_[position].has_ended) return outputs;
    late_[position].outputs = std::move(outputs);
    return std::nullopt;
  }
  std::optional<Buffers> NoteEnded(size_t position) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    late_[position].has_ended = true;
    return std::exchange(late_[position].outputs, std::nullopt);
  }

 private:
  struct Late {
    bool has_ended = false;
    std::optional<Buffers> outputs;
  };

  Mutex mutex_;
  std::vector<Late> late_ GANGWAY_GUARDED_BY(mutex_);  // by position
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LATE_RESULTS_H_
