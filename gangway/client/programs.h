// Programs: the dataflow graphs that a session has registered with the controller, each of which it launches by one
// message. It makes the operations that register, launch and drop them, and keeps of each what a launch needs: how many
// nodes the session counts for it, and on which devices its results are.
//
// Threading: thread-safe. Its lock is taken before those of Handles and Submitter.
// Failure: a program that is refused answers with the reason, and its launches spoil their results with it (ER-1).
// Operations of a lost session do nothing, but tell `done` and `ended`.
#ifndef GANGWAY_CLIENT_PROGRAMS_H_
#define GANGWAY_CLIENT_PROGRAMS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/handles.h"
#include "gangway/client/submitter.h"
#include "gangway/program/program.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

// Of one launch.
struct LaunchOptions {
  std::span<const GatheredArgument> gathered;  // as in CallOptions
  StatusCallback ended;                        // of all its nodes; see Client::reports_ends
};

class Programs {
 public:
  Programs(Activity* activity, Submitter* submitter, Handles* handles)
      : activity_(*activity), submitter_(*submitter), handles_(*handles) {}

  // `program` verifies, has no frees, and names its functions by the numbers of executables' handles, whose compiles
  // have answered. `like`: for each argument an array whose type it has, or none; there may be fewer. `done` runs once,
  // on the loop. Launches need not wait for it. `sequential`: as in wire::RegisterProgramOp.
  ProgramHandle Register(const program::Program& program, std::span<const ArrayHandle> like,
                         StatusCallback done, bool sequential = false) GANGWAY_EXCLUDES(mutex_);

  // Runs the program: its nodes behind all that was submitted before. The handles of the results are new. The number is
  // that of the last node; none if the program has no node. A launch of a program that this session does not have
  // counts as one node, which the controller fails.
  OperationId Launch(ProgramHandle program, std::span<const ArrayHandle> arguments,
                     std::span<const ArrayHandle> results, LaunchOptions options = {})
      GANGWAY_EXCLUDES(mutex_);

  // Launches that were submitted before are not affected.
  void Drop(std::span<const ProgramHandle> programs) GANGWAY_EXCLUDES(mutex_);

  void OnRegistered(const wire::Registered& registered) GANGWAY_EXCLUDES(mutex_);  // on the loop
  // The session is lost. On the loop.
  void EndAll(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

 private:
  struct Registered {
    uint64_t nodes = 0;
    std::vector<Devices> results;  // null: not known
  };

  Registered Describe(const program::Program& program, std::span<const ArrayHandle> like) const;
  std::shared_ptr<const Registered> Find(ProgramHandle program) const GANGWAY_EXCLUDES(mutex_);

  Activity& activity_;
  Submitter& submitter_;
  Handles& handles_;

  mutable Mutex mutex_;
  absl::flat_hash_map<ProgramHandle, std::shared_ptr<const Registered>> programs_
      GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<ProgramHandle, StatusCallback> unanswered_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_PROGRAMS_H_
