// PushQueue: the pushes that wait for one worker, and which of them is sent next. Small ones take turns with the large
// ones that have begun. The other large ones wait until few enough have begun; then each first requests a place in the
// worker's memory, if the worker's memory can be reached.
//
// It outlives the links to the worker, and knows none. Threading: belongs to the client's event loop; releasing bytes
// calls their owner, last for each push.
#ifndef GANGWAY_CLIENT_PUSH_QUEUE_H_
#define GANGWAY_CLIENT_PUSH_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"

#include "gangway/client/push.h"
#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/send_turns.h"

namespace gangway::client {

// Its bytes, on their way.
transport::OutgoingShard BytesOf(const Push& push);

struct Pushing {
  explicit Pushing(Push from) : push(std::move(from)), shard(BytesOf(push)) {}

  Push push;
  transport::OutgoingShard shard;
  bool unplaceable = false;  // do not request a place (again)
};

// What became of a request for a place.
enum class PlaceRequest : uint8_t {
  kSent,
  kNoSharedMemory,  // the bytes are to be sent
  kFull,            // the link takes no more for now
};

class PushQueue {
 public:
  using Turn = transport::SendTurns<Pushing>::Turn;
  static constexpr size_t kInterleaved = 4;  // large pushes that take turns

  void Add(Pushing pushing);
  // Its place has been requested; the answer will come.
  void AddPlacing(Pushing pushing) { placing_.push_back(std::move(pushing)); }

  // Begins as many of those that wait as may take turns. False: the link takes no more for now.
  bool Activate(absl::FunctionRef<PlaceRequest(const Push&)> request);
  // The answer to a request: `place` finds the memory of this size, or null. False: no push waits for it.
  bool OnPlace(PushName name, absl::FunctionRef<std::shared_ptr<std::byte>(size_t size)> place);

  bool has_begun() const { return !active_.empty(); }
  // The push whose turn it is, of those that have begun; none: has_begun is false.
  std::optional<Turn> Take() { return active_.Take(); }
  // The link did not take it.
  void Undo(Turn turn) { active_.Undo(std::move(turn)); }
  // More of it is to be sent.
  void Again(Turn turn) { active_.Again(std::move(turn)); }

  // Takes the pushes that `of` selects off the queue, releases their bytes, and returns their uploads.
  std::set<UploadId> TakeIf(absl::FunctionRef<bool(const Pushing&)> of);
  std::set<UploadId> TakeAll();
  // The link is lost, and with it the worker's memory: what is left is sent.
  void LosePlaces();

  bool empty() const { return active_.empty() && placing_.empty() && waiting_.empty(); }

 private:
  void Begin(Pushing pushing);

  // Small pushes, and the large ones that have begun.
  transport::SendTurns<Pushing> active_;
  std::deque<Pushing> placing_;  // have requested a place
  std::deque<Pushing> waiting_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_PUSH_QUEUE_H_
