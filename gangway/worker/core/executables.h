// The programs that are loaded on this worker's devices, or failed to be: where each runs, and what its results are.
//
// What the service must do is added to `actions`. Ids that are not known are ignored. Not thread-safe.
#ifndef GANGWAY_WORKER_CORE_EXECUTABLES_H_
#define GANGWAY_WORKER_CORE_EXECUTABLES_H_

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/fleet.h"
#include "gangway/worker/core/held.h"
#include "gangway/worker/core/identity.h"

namespace gangway::worker {

struct Executable {
  wire::ProgramLabelRef label;
  Held<ExecutableSlot> held;  // of no record: the service was not told to load it
  LocalPositions positions;
  std::vector<wire::TensorSpec> results;
  bool has_members = false;              // which run its collectives, Gangway's own
  std::optional<wire::Failure> failure;  // of loading
};

class Executables {
 public:
  explicit Executables(Identity worker) : worker_(std::move(worker)) {}

  size_t size() const { return executables_.size(); }
  void Clear() { executables_.clear(); }
  const Executable* Find(ExecutableId id) const;  // null: it is not known

  // Loads the part of a program that is on this worker; one with collectives names its epoch to `fleet`. False: the
  // service has nothing to load, since no part of it is here or for the failure that Find shows.
  bool Load(wire::Load& load, Fleet& fleet, std::vector<Action>& actions);
  // The service could not load it: its launches fail for this reason, to which the worker and the program are added
  // where they are missing.
  void FailLoad(ExecutableId id, wire::Failure& failure);
  void Unload(ExecutableId id, std::vector<Action>& actions);

 private:
  const Identity worker_;
  std::unordered_map<ExecutableId, Executable> executables_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_EXECUTABLES_H_
