// A collective of a large group whose operands are small: each member gets those of all others from a few, which pass
// on what they have got so far. In step s, the member of rank r sends what it has to rank r - 2^s and reads that of
// rank r + 2^s, modulo the size n of the group (Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997). So a member meets log2(n) others, where it would read n messages, and
// the workers of an island need not all have a way to one another.
//
// Each member ends with all operands and reduces them itself, in the group's order: the bits are those of any other
// way.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_RELAY_H_
#define GANGWAY_COLLECTIVE_EXECUTION_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/sender.h"
#include "gangway/collective/execution/source.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Relay {
 public:
  // Of a collective with Route::kRelayed. All outlive this.
  Relay(Waiter& waiter, Sender& sender, const Call& call);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The errors of Member::Run.
  absl::Status Run();

 private:
  // Of the block of this member, and of those of the ranks after it.
  std::byte* block(size_t distance) { return blocks_.data() + distance * block_bytes_; }
  const std::byte* BlockOf(size_t rank) const {
    return blocks_.data() + (rank + members_ - call_.role.rank) % members_ * block_bytes_;
  }
  uint32_t PositionAt(size_t distance) const {
    return (*call_.role.sources)[(call_.role.rank + distance) % members_];
  }
  void Pack();
  // The first `count` blocks.
  absl::Status Send(size_t step, uint32_t to, size_t count);
  absl::Status Receive(size_t step, uint32_t from, std::byte* into, size_t count);
  void Unpack() const;

  Waiter& waiter_;
  Sender& sender_;
  const Call& call_;
  MessageReader reader_;
  const size_t members_;
  const size_t block_bytes_;
  std::vector<std::byte> blocks_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_RELAY_H_
