// A queue in which sessions take turns: a session that queues much delays another one by one item at a time.
// Not thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_TURNS_H_
#define GANGWAY_WORKER_SERVICE_TURNS_H_

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "gangway/base/ids.h"

namespace gangway::worker {

template <typename Item>
class Turns {
 public:
  void Push(SessionId session, Item item) {
    std::deque<Item>& items = items_[session];
    if (items.empty()) order_.push_back(session);
    items.push_back(std::move(item));
  }

  // Undoes a Take: the item is the next one again.
  void PushFront(SessionId session, Item item) {
    std::erase(order_, session);
    order_.push_front(session);
    items_[session].push_front(std::move(item));
  }

  // Takes the oldest item of the session whose turn it is, of those for which `may(session, item)` holds.
  template <typename May>
  std::optional<std::pair<SessionId, Item>> Take(May may) {
    for (size_t looked = 0; looked < order_.size(); ++looked) {
      const SessionId session = order_.front();
      order_.pop_front();
      auto entry = items_.find(session);
      if (!may(session, entry->second.front())) {
        order_.push_back(session);
        continue;
      }
      std::pair<SessionId, Item> taken(session, std::move(entry->second.front()));
      entry->second.pop_front();
      if (entry->second.empty()) {
        items_.erase(entry);
      } else {
        order_.push_back(session);
      }
      return taken;
    }
    return std::nullopt;
  }
  std::optional<std::pair<SessionId, Item>> Take() {
    return Take([](SessionId, const Item&) { return true; });
  }

  bool empty() const { return order_.empty(); }

 private:
  std::map<SessionId, std::deque<Item>> items_;  // none is empty
  std::deque<SessionId> order_;                  // each session of items_ once
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TURNS_H_
