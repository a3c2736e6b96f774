// One call of a collective by one member whose sources it reads directly: in which order it sends and reads, and how
// its results are made of what its sources give (source.h).
//
// Writing a result may not change what another member has yet to read. So an all-reduce may be in place (a member
// writes a part only when the member that reduces it has read it), and a ragged exchange may write over what its result
// was before. Any other overlap of a result and an operand is refused: XLA gives the results of these calls memory of
// their own.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/offer.h"
#include "gangway/collective/execution/pieces.h"
#include "gangway/collective/execution/ragged.h"
#include "gangway/collective/execution/sender.h"
#include "gangway/collective/execution/sources.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Exchange {
 public:
  // All outlive this.
  Exchange(Waiter& waiter, Sender& sender, const Call& call);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The errors of Member::Run.
  absl::Status Run();

 private:
  // INTERNAL: a result overlaps an operand that others may not have read yet.
  absl::Status CheckOverlaps() const;
  absl::Status SendAndReceive();
  absl::Status Receive(size_t index);
  absl::Status ReceiveRagged(size_t index);
  absl::Status ReceiveInParts(size_t index);
  absl::Status GatherSent(size_t index);
  absl::Status GatherRound(size_t last);
  void CopyPart(size_t index, size_t rank, const Source& source) const;
  void CopyResult(std::byte* to, const std::byte* from, size_t bytes) const;
  void CopyResults(const Spaced<std::byte>& to, const Spaced<const std::byte>& from,
                   const PieceRuns& runs) const;
  void Unpack(size_t index, const Segment& segment) const;
  void UnpackBlocks(size_t index, const Segment& segment) const;

  Waiter& waiter_;
  const Call& call_;
  const bool is_beyond_caches_;       // the results of this host's members together
  std::optional<RaggedPart> ragged_;  // of a ragged exchange
  Offer offer_;
  Sources sources_;  // after offer_: it leaves the sources first
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_EXCHANGE_H_
