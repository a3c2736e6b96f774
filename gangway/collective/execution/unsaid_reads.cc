// Implementation of unsaid_reads.h.
#include "gangway/collective/execution/unsaid_reads.h"

#include <algorithm>
#include <iterator>

namespace gangway::collective {
namespace {

// Messages that are read before their worker is told, if nothing else goes there. Below kSlots, so that a sender does
// not wait for a device that does something else.
constexpr uint32_t kUnsaidMax = 2;
static_assert(kUnsaidMax < kSlots);

}  // namespace

void UnsaidReads::Note(const std::shared_ptr<const Peer>& peer, uint32_t source,
                       uint64_t sequence) {
  MutexLock lock(mutex_);
  auto unsaid = std::ranges::find_if(
      unsaid_, [&](const Unsaid& each) { return each.peer == peer && each.read.source == source; });
  if (unsaid == unsaid_.end()) {
    unsaid_.push_back({peer, {.device = device_, .source = source}});
    unsaid = std::prev(unsaid_.end());
  }
  unsaid->read.sequence = sequence;
  if (++unsaid->messages >= kUnsaidMax) Say(*peer);
}

absl::Status UnsaidReads::Send(const Peer& peer, const Published& message) {
  MutexLock lock(mutex_);
  return peer.courier()->Send(&message, Take(peer));
}

void UnsaidReads::Say() {
  MutexLock lock(mutex_);
  while (!unsaid_.empty()) {
    const std::shared_ptr<const Peer> peer = unsaid_.back().peer;
    Say(*peer);
  }
}

void UnsaidReads::Say(const Peer& peer) { peer.courier()->Send(nullptr, Take(peer)).IgnoreError(); }

std::vector<ReadUpTo> UnsaidReads::Take(const Peer& peer) {
  std::vector<ReadUpTo> reads;
  std::erase_if(unsaid_, [&](const Unsaid& each) {
    if (each.peer.get() == &peer) reads.push_back(each.read);
    return each.peer.get() == &peer;
  });
  return reads;
}

}  // namespace gangway::collective
