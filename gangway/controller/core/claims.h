// Which owner's sessions may use which worker, where sessions of different owners share no worker process. The first
// session that gives a worker work claims it for its owner. The claim ends with the last session of that owner, and the
// worker's process with it: another owner gets the next one. Pure; costs nothing where sessions share workers.
#ifndef GANGWAY_CONTROLLER_CORE_CLAIMS_H_
#define GANGWAY_CONTROLLER_CORE_CLAIMS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/owner.h"

namespace gangway::controller {

class Claims {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Claim {
    Owner owner;
    SessionId first;  // that used the worker; it may have ended
    std::string client;
    Time since;
    std::set<SessionId> sessions;  // that have used it
  };

  // Workers are named by their index. `isolates`: false: there are no claims.
  Claims(bool isolates, size_t worker_count)
      : isolates_(isolates), claims_(isolates ? worker_count : 0) {}

  bool isolates() const { return isolates_; }

  void Open(const Owner& owner);  // a session of it
  // Returns the workers whose claim this ends; nullopt: the owner has other sessions, and keeps its claims.
  std::optional<std::vector<size_t>> Close(SessionId session, const Owner& owner);

  // The claim of an owner other than this; null: there is none.
  const Claim* Foreign(size_t worker, const Owner& owner) const;
  const Claim* Of(size_t worker) const;  // null: none

  // The session gives work to a worker that no other owner has claimed. True: for the first time.
  bool Use(size_t worker, SessionId session, const Owner& owner, std::string_view client, Time now);

 private:
  const bool isolates_;
  std::map<Owner, size_t> sessions_;  // how many are open
  std::vector<std::optional<Claim>> claims_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CLAIMS_H_
