// SendTurns: in which order the shards that wait for one link are sent, piece by piece. Sessions take turns, so that
// one that sends much delays another by one piece. Within a session, small and large shards alternate, and the first
// few large ones take turns.
//
// Holds what is pushed and nothing else; its owner bounds that. Not thread-safe.
#ifndef GANGWAY_TRANSPORT_BULK_SEND_TURNS_H_
#define GANGWAY_TRANSPORT_BULK_SEND_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"

namespace gangway::transport {

// kSmall: one frame is enough.
enum class ShardSize : uint8_t { kSmall, kLarge };

template <typename Item>
class SendTurns {
 public:
  struct Turn {
    SessionId session;
    ShardSize size = ShardSize::kLarge;
    Item item;
  };

  // `interleaved`: the shards of a session and size that take turns; at least 1.
  explicit SendTurns(size_t interleaved = SIZE_MAX) : interleaved_(interleaved) {}

  void Push(SessionId session, ShardSize size, Item item) {
    ItemsOf(QueueOf(session), size).push_back(std::move(item));
  }

  // Takes the item whose turn it is, of those for which `may(session, item)` holds.
  template <typename May>
  std::optional<Turn> Take(May may) {
    for (size_t looked = 0, sessions = order_.size(); looked < sessions; ++looked) {
      const SessionId session = order_.front();
      order_.pop_front();
      Queue& queue = queues_.at(session);
      const auto size = Next(queue, [&](const Item& item) { return may(session, item); });
      if (!size) {
        order_.push_back(session);
        continue;
      }
      std::deque<Item>& items = ItemsOf(queue, *size);
      Turn turn{session, *size, std::move(items.front())};
      items.pop_front();
      queue.small_next = *size == ShardSize::kLarge;
      if (queue.small.empty() && queue.large.empty()) {
        queues_.erase(session);
      } else {
        order_.push_back(session);
      }
      return turn;
    }
    return std::nullopt;
  }
  std::optional<Turn> Take() {
    return Take([](SessionId, const Item&) { return true; });
  }

  // The link did not take the item: it is the next one again.
  void Undo(Turn turn) {
    Queue& queue = QueueOf(turn.session);
    std::erase(order_, turn.session);
    order_.push_front(turn.session);
    queue.small_next = turn.size == ShardSize::kSmall;
    ItemsOf(queue, turn.size).push_front(std::move(turn.item));
  }

  // The item has more pieces: it goes behind the others that take turns with it.
  void Again(Turn turn) {
    std::deque<Item>& items = ItemsOf(QueueOf(turn.session), turn.size);
    const auto place = static_cast<std::ptrdiff_t>(std::min(items.size(), interleaved_ - 1));
    items.insert(items.begin() + place, std::move(turn.item));
  }

  // Removes and returns the items that `of` selects.
  template <typename Of>
  std::vector<Item> TakeIf(Of of) {
    std::vector<Item> taken;
    for (auto queue = queues_.begin(); queue != queues_.end();) {
      for (auto* items : {&queue->second.small, &queue->second.large}) {
        for (Item& item : std::exchange(*items, {}))
          of(item) ? taken.push_back(std::move(item)) : items->push_back(std::move(item));
      }
      const bool empty = queue->second.small.empty() && queue->second.large.empty();
      if (empty) std::erase(order_, queue->first);
      queue = empty ? queues_.erase(queue) : std::next(queue);
    }
    return taken;
  }
  std::vector<Item> TakeAll() {
    return TakeIf([](const Item&) { return true; });
  }
  template <typename Do>
  void ForEach(Do act) {
    for (auto& [session, queue] : queues_) {
      std::for_each(queue.small.begin(), queue.small.end(), act);
      std::for_each(queue.large.begin(), queue.large.end(), act);
    }
  }

  bool empty() const { return order_.empty(); }
  size_t size() const { return size(ShardSize::kSmall) + size(ShardSize::kLarge); }
  size_t size(ShardSize size) const {
    size_t count = 0;
    for (const auto& [session, queue] : queues_)
      count += (size == ShardSize::kSmall ? queue.small : queue.large).size();
    return count;
  }

 private:
  struct Queue {
    std::deque<Item> small, large;
    bool small_next = true;
  };

  // Creates it, with its turn behind the others.
  Queue& QueueOf(SessionId session) {
    auto [entry, is_new] = queues_.try_emplace(session);
    if (is_new) order_.push_back(session);
    return entry->second;
  }
  static std::deque<Item>& ItemsOf(Queue& queue, ShardSize size) {
    return size == ShardSize::kSmall ? queue.small : queue.large;
  }
  template <typename May>
  static std::optional<ShardSize> Next(const Queue& queue, May may) {
    const bool small = !queue.small.empty() && may(queue.small.front());
    if (small && queue.small_next) return ShardSize::kSmall;
    if (!queue.large.empty() && may(queue.large.front())) return ShardSize::kLarge;
    return small ? std::optional(ShardSize::kSmall) : std::nullopt;
  }

  const size_t interleaved_;
  std::map<SessionId, Queue> queues_;  // none is empty
  std::deque<SessionId> order_;        // each session of queues_ once
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_SEND_TURNS_H_
