// How one member of a launch sends messages: it writes them into the slots of its device, in turns, and gives couriers
// what members on other hosts need of them.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SENDER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SENDER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/collective/execution/sent_messages.h"
#include "gangway/collective/execution/waiter.h"

namespace gangway::collective {

class Sender {
 public:
  explicit Sender(Waiter& waiter) : waiter_(waiter), device_(waiter.device()) {}

  // Adds what the reader of this rank needs of a message, in increasing order.
  using NeedOf = absl::FunctionRef<void(size_t rank, std::vector<ByteRange>&)>;

  // The next slot, once its message has been read. The errors of Waiter::Await; the reason of the launch's abort.
  absl::StatusOr<MessageWriter> BeginMessage();
  // UNAVAILABLE: the way to a reader is broken, and no reason has come.
  absl::Status EndMessage(const MessageWriter& message, const MessageKey& key,
                          const PositionList& readers, Audience audience, NeedOf need);
  // A message that has no bytes, or says only where others find them in this worker's heap. To workers of this host.
  void EndShowing(const MessageWriter& message, const MessageKey& key, const PositionList& readers);
  // Until the readers on other workers have read all that this device has sent.
  absl::Status AwaitReadersElsewhere(const PositionList& readers);
  // What the launch has shown is not valid any more.
  void Hide() const;
  // This worker's heap, if all members of the launch can read it; else null.
  std::shared_ptr<const ReadableHeap> HeapToShow() const {
    return waiter_.launch().needs_couriers() ? nullptr : device_.arena().heap();
  }

 private:
  // A message that is about to be sent. It does not keep the launch, so that this is over when its members are.
  SentMessage Describe(uint64_t sequence, const PositionList& readers, Audience audience) const;
  // Whether the reader has read the device's messages up to this one, or never will.
  bool IsRead(const PeerDevice& reader, const SentMessage& sent) const;
  absl::Status AwaitRead(const PeerDevice& reader, const SentMessage& sent);
  absl::Status SendByCourier(const MessageWriter& message, const MessageKey& key,
                             const PositionList& readers, NeedOf need);

  Waiter& waiter_;
  LocalDevice& device_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SENDER_H_
