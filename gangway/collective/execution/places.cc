// Implementation of places.h.
#include "gangway/collective/execution/places.h"

#include <bitset>
#include <utility>

namespace gangway::collective {

Places::Places(std::vector<Place> by_position) : by_position_(std::move(by_position)) {
  std::bitset<kWorkersMax> here, far;
  for (const Place& place : by_position_) {
    const uint32_t worker = place.peer->index();
    if (place.peer->courier() == nullptr) {
      ++positions_of_host_;
      here.set(worker);
    } else if (!far.test(worker)) {
      far.set(worker);
      far_peers_.push_back(place.peer);
    }
  }
  workers_of_host_ = here.count();
}

}  // namespace gangway::collective
