// Origin: the process that opened a session. A child that is forked from it has none of the session's threads, and
// perhaps locks that nothing will release: there, every question is answered on the caller's thread, and the rest does
// nothing.
//
// Threading: any thread; never waits.
#ifndef GANGWAY_CLIENT_ORIGIN_H_
#define GANGWAY_CLIENT_ORIGIN_H_

#include <cstdint>

#include "absl/status/status.h"

#include "gangway/base/fork.h"

namespace gangway::client {

class Origin {
 public:
  bool is_elsewhere() const { return ForkGeneration() != generation_; }

  // What a forked child is answered.
  static absl::Status Elsewhere() {
    return absl::UnavailableError(
        "this process was forked from the one that opened the session, and has none of its "
        "threads: start processes with the method 'spawn', or connect in the child");
  }

 private:
  const uint64_t generation_ = ForkGeneration();
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_ORIGIN_H_
