// Which devices run the positions of a program, with the counts that each launch needs. They are computed once per
// program, so the cost of a launch does not grow with its positions on other workers.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_PEER_DEVICES_H_
#define GANGWAY_COLLECTIVE_EXECUTION_PEER_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/peer.h"

namespace gangway::collective {

struct PeerDevice {
  std::shared_ptr<const Peer> peer;  // null: no member of this worker meets it
  uint32_t device = 0;               // of that worker

  uint32_t number() const { return PeerNumber(peer->index(), device); }
  const Region& region() const { return peer->arena().region(device); }
  bool shares_memory() const { return peer->courier() == nullptr; }
};

class PeerDevices {
 public:
  explicit PeerDevices(std::vector<PeerDevice> by_position);

  const PeerDevice& operator[](size_t position) const { return by_position_[position]; }
  size_t size() const { return by_position_.size(); }
  auto begin() const { return by_position_.begin(); }
  auto end() const { return by_position_.end(); }

  // Positions on this worker and on workers that share memory with it, the number of these workers, and the regions of
  // the positions.
  size_t positions_of_host() const { return regions_of_host_.size(); }
  size_t workers_of_host() const { return workers_of_host_; }
  const std::vector<const Region*>& regions_of_host() const { return regions_of_host_; }
  // All other workers that members of this one meet, each once.
  const std::vector<std::shared_ptr<const Peer>>& far_peers() const { return far_peers_; }

 private:
  std::vector<PeerDevice> by_position_;
  std::vector<const Region*> regions_of_host_;
  size_t workers_of_host_ = 0;
  std::vector<std::shared_ptr<const Peer>> far_peers_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_PEER_DEVICES_H_
