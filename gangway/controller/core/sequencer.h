// The order of gangs that span islands (GS-4). Each island has its own scheduler; two schedulers
// that took such gangs in different orders would wait for each other forever.
//
// A gang gets its turn once each of its islands could release its part, the lowest ordinal first.
// A gang whose inputs are late, or whose island is busy, delays no other gang. On its turn, each
// part takes memory and slots before all local gangs; all parts are released once the last one has
// them. While gangs that share an island are on their turn, a gang gets its own turn only if its
// ordinal is higher. Islands serve turns in ordinal order, so the lowest turn waits only for
// released gangs, and every other turn also for lower ones.
//
// Pure. Ignores ordinals and islands that it does not expect.
#ifndef GANGWAY_CONTROLLER_CORE_SEQUENCER_H_
#define GANGWAY_CONTROLLER_CORE_SEQUENCER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gangway/base/ids.h"

namespace gangway::controller {

class Sequencer {
 public:
  struct Decision {
    Ordinal ordinal;
    bool release = false;  // otherwise: its turn to take memory and slots
    std::vector<uint32_t> islands;
  };

  // A gang was sent to these islands.
  void Add(Ordinal ordinal, std::vector<uint32_t> islands);
  // Its part on `island` waits only for its turn.
  void OnReady(Ordinal ordinal, uint32_t island, std::vector<Decision>& decisions);
  // Its part on `island` holds memory and slots.
  void OnAdmitted(Ordinal ordinal, uint32_t island, std::vector<Decision>& decisions);
  // The gang has failed: it will not be released, and its islands return what it held.
  void Remove(Ordinal ordinal, std::vector<Decision>& decisions);

  // Gangs that are not released.
  size_t size() const { return gangs_.size(); }

 private:
  struct Gang {
    std::vector<uint32_t> islands;
    std::set<uint32_t> missing;  // islands that have not reported ready (on its turn: admitted)
    bool has_turn = false;
  };

  // Gives the gang its turn unless a higher one has its turn on a shared island.
  bool TryGiveTurn(Ordinal ordinal, Gang& gang, std::vector<Decision>& decisions);
  // A gang that had its turn is gone: gives turns to those that waited behind it alone.
  void EndTurn(Ordinal ordinal, const Gang& gang, std::vector<Decision>& decisions);

  std::map<Ordinal, Gang> gangs_;
  std::set<Ordinal> ready_;                      // ready on all their islands, without a turn
  std::map<uint32_t, std::set<Ordinal>> turns_;  // with a turn, by island; none is empty
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SEQUENCER_H_
