// A launch's member on a device of this worker, and how it runs collectives with all others, by the arenas of their
// workers, or by mirrors of them (peer.h).
//
// A collective's member writes what others need into messages of its own region, waits for the messages of others, and
// makes its results from them. Reductions are done in the group's order, one member after another, so that the same
// bits come out whatever the timing and wherever the members are. Small operands are reduced by every member; of large
// ones each reduces a part, and the parts are gathered. A slot is written again when all that read it have done so, or
// have left its gang.
//
// Waits look at memory for a short time, then sleep. A wait ends with an error when the launch is aborted, or after the
// limit. What others do never ends this process, and nobody waits for a lock that another process holds.
//
// Threading: one thread at a time.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "gangway/collective/execution/flight_record.h"
#include "gangway/collective/execution/launch.h"
#include "gangway/collective/execution/local_device.h"
#include "gangway/collective/execution/sender.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Member {
 public:
  // `device_id`: of the device in the cluster, for the flight recorder.
  Member(std::shared_ptr<Launch> launch, std::shared_ptr<LocalDevice> device, uint32_t position,
         uint32_t device_id = 0);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // One collective. The operands and results are those of the program's call, without the chain. An all-reduce
  // may write over its own operand, and a ragged exchange over the operand with its result's former contents. Errors:
  // INVALID_ARGUMENT: the call does not fit the plan, or the positions do not run the same collectives in one order;
  // INTERNAL: any other overlap of a result and an operand; DEADLINE_EXCEEDED: a member did not come; the reason of an
  // abort; UNAVAILABLE: another member was aborted while this one read its message.
  absl::Status Run(int64_t number, std::span<const std::span<const std::byte>> operands,
                   std::span<const std::span<std::byte>> results);

 private:
  const uint32_t position_;
  std::vector<uint32_t> rounds_;  // by collective
  FlightRecord flight_;
  Waiter waiter_;
  Sender sender_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_MEMBER_H_
