// What a member gives others in one call of a collective: messages with its operands and with its parts of the results,
// and the operands and results themselves, where others may read them in place.
//
// Large operands of members on the same worker are not sent: each shows its operands and results (shown.h), and the
// others read them there. If all members are on one host, the heap's readers do the same (arena.h, ReadableHeap). A
// member then ends its call when they have.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_OFFER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_OFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/call.h"
#include "gangway/collective/execution/ragged.h"
#include "gangway/collective/execution/sender.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Offer {
 public:
  // `ragged`: of a ragged exchange, else null. All outlive this.
  Offer(Waiter& waiter, Sender& sender, const Call& call, const RaggedPart* ragged);
  // What it shows is valid until then: it waits for those here that read it. Without an End, the launch is aborted.
  ~Offer();
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  // Shows what can be read in place. Before the first message.
  void Open();
  // A message, unless it has no reader, or does not exist.
  absl::Status Send(size_t message);
  // This member's part of a message is reduced.
  absl::Status SendPart(size_t message, const Segment& segment);
  // Ends the call, which has come this far with `status`. A good one waits until others have read what it shows; a
  // failure ends the launch, so that members here that read end, too.
  absl::Status End(absl::Status status);

 private:
  enum class State { kClosed, kOpen, kEnded };

  void FindReaders();
  // Whether all other members may read this one's operands and results where they are, if these are in a heap.
  bool MayShow() const;
  // Also notes in the launch the operands that are not.
  bool AreInHeap(const ReadableHeap& heap) const;
  absl::Status ShowInHeap();
  bool IsSent(size_t message) const;
  Audience AudienceOf(size_t message) const {
    return call_.IsInPlace(message) ? Audience::kOtherWorkers : Audience::kAll;
  }
  ByteRange NeedOf(const Message& message, const Segment& segment, size_t rank) const;
  // Not what only members here need of a message that they read where it is.
  void Pack(size_t message, const Segment& segment, std::byte* into) const;
  bool IsPackedFor(size_t message, size_t rank) const {
    return !call_.IsInPlace(message) || is_elsewhere_[rank];
  }
  absl::Status AwaitReadersHere();

  Waiter& waiter_;
  Sender& sender_;
  const Call& call_;
  const RaggedPart* const ragged_;
  State state_ = State::kClosed;
  // Of this worker, if operands and results are shown there. Null: they are not.
  std::shared_ptr<const ReadableHeap> heap_;
  std::vector<uint32_t> readers_here_;  // positions that read in place, without this one
  std::vector<bool> is_elsewhere_;      // by rank of the readers
  bool has_readers_elsewhere_ = false;  // of messages that members here read in place
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_OFFER_H_
