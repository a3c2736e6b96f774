// The worker, as its failure records name it (ER-1). Plain data, which its owners copy.
#ifndef GANGWAY_WORKER_CORE_IDENTITY_H_
#define GANGWAY_WORKER_CORE_IDENTITY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {

struct Identity {
  std::string name;  // "island0/worker1"
  Incarnation incarnation;
  int device_count = 0;

  // A failure on this worker. Ordinal 0 and a null program: of no node, or of one that is not known.
  wire::Failure Fail(absl::StatusCode code, std::string_view message, Ordinal ordinal,
                     const wire::ProgramLabelRef& program) const;
  // Adds the node, its program and this worker.
  void Locate(Ordinal ordinal, const wire::ProgramLabelRef& program, wire::Failure& failure) const;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_IDENTITY_H_
