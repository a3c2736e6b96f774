// Where the positions of a program run, with the incarnations of its workers that are known now. The first launches
// wait until all of these are known, on their devices' threads.
//
// Threading: any thread.
#ifndef GANGWAY_WORKER_SERVICE_PROMISED_PLACES_H_
#define GANGWAY_WORKER_SERVICE_PROMISED_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/member.h"
#include "gangway/worker/service/peer_promise.h"

namespace gangway::worker {

class PromisedPlaces {
 public:
  struct Place {
    size_t peer = 0;      // its number in `peers`
    uint32_t device = 0;  // of that worker
  };
  PromisedPlaces(std::vector<std::shared_ptr<PeerPromise>> peers, std::vector<Place> places)
      : peers_(std::move(peers)), places_(std::move(places)) {}

  // The same list for all. The errors of PeerPromise::Wait, INTERNAL for a device that its worker does not have, and
  // what `unwanted` returns, which is asked again and again.
  absl::StatusOr<std::shared_ptr<const collective::Places>> Wait(
      Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted)
      GANGWAY_EXCLUDES(mutex_);

 private:
  const std::vector<std::shared_ptr<PeerPromise>> peers_;  // fewer than places
  const std::vector<Place> places_;
  Mutex mutex_;
  std::shared_ptr<const collective::Places> known_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_PROMISED_PLACES_H_
