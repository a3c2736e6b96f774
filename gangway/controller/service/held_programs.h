// The programs that the controller holds for its sessions, from their arrival until their compiles are answered. Large
// ones are charged to the head's memory.
//
// Threading: the controller's loop. Failure: a program that does not fit is refused; nothing else changes.
#ifndef GANGWAY_CONTROLLER_SERVICE_HELD_PROGRAMS_H_
#define GANGWAY_CONTROLLER_SERVICE_HELD_PROGRAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/base/memory_budget.h"

namespace gangway::controller {

class HeldPrograms {
 public:
  // Smaller programs are not charged: the compile queue bounds their number.
  static constexpr uint64_t kBytesMin = uint64_t{64} << 10;
  // A program is in the queue and, while it is sent to the compiler, in a copy.
  static constexpr uint64_t kCopies = 2;

  explicit HeldPrograms(std::shared_ptr<MemoryBudget> budget)  // null: no limit
      : budget_(std::move(budget)) {}
  ~HeldPrograms();
  HeldPrograms(const HeldPrograms&) = delete;
  HeldPrograms& operator=(const HeldPrograms&) = delete;

  // RESOURCE_EXHAUSTED: it does not fit, with the sizes. INVALID_ARGUMENT: the session's `executable` is in use.
  absl::Status Take(SessionId session, ExecutableHandle executable, uint64_t bytes);
  void End(SessionId session, ExecutableHandle executable);
  void EndSession(SessionId session);

 private:
  using Key = std::pair<SessionId, ExecutableHandle>;
  std::map<Key, uint64_t>::iterator Release(std::map<Key, uint64_t>::iterator program);

  const std::shared_ptr<MemoryBudget> budget_;
  std::map<Key, uint64_t> charged_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_SERVICE_HELD_PROGRAMS_H_
