// A position of a gang that runs on a device of this worker, with the slots of its arguments and results.
//
// Threading: one thread at a time executes a position; its slots are for any thread.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_POSITION_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_POSITION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gangway/store/slot.h"

namespace gangway::worker {

struct LocalPosition {
  uint32_t number = 0;  // logical
  int device = 0;
  std::vector<std::shared_ptr<store::Slot>> arguments;
  std::vector<std::shared_ptr<store::Slot>> results;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_POSITION_H_
