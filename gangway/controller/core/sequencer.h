// The order of gangs that span islands (GS-4). Each island has its own scheduler, and two of them
// that took such gangs in different orders would wait for one another for ever.
//
// A gang gets its turn once each of its islands could release its part, the lowest ordinal first:
// one whose inputs are late, or whose island is busy, holds up nobody. With its turn, each part
// takes memory and slots before all gangs of one island; when the last part has them, all are
// released. While others that share an island have their turn, a gang gets its own only if its
// ordinal is higher: islands serve turns in ordinal order, so the lowest waits for released gangs
// only, and the others for lower ones.
//
// Pure; trusts its islands to name what they were sent, ignores what it does not know.
#ifndef GANGWAY_CONTROLLER_CORE_SEQUENCER_H_
#define GANGWAY_CONTROLLER_CORE_SEQUENCER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace gangway::controller {

class Sequencer {
 public:
  struct Decision {
    uint64_t ordinal = 0;
    bool release = false;  // otherwise: its turn to take memory and slots
    std::vector<uint32_t> islands;
  };

  // A gang was sent to these islands.
  void Add(uint64_t ordinal, std::vector<uint32_t> islands);
  // Its part on `island` waits for nothing but its turn.
  void OnReady(uint64_t ordinal, uint32_t island, std::vector<Decision>& decisions);
  // Its part on `island` holds memory and slots.
  void OnAdmitted(uint64_t ordinal, uint32_t island, std::vector<Decision>& decisions);
  // It has failed: it will not be released, and what it held is given back by its islands.
  void Remove(uint64_t ordinal, std::vector<Decision>& decisions);

  // Gangs that are not released.
  size_t size() const { return gangs_.size(); }

 private:
  struct Gang {
    std::vector<uint32_t> islands;
    std::set<uint32_t> missing;  // islands that have yet to say that they are ready, then admitted
    bool has_turn = false;
  };

  void GiveTurns(std::vector<Decision>& decisions);

  std::map<uint64_t, Gang> gangs_;  // by ordinal
  std::set<uint64_t> ready_;        // on all their islands, without a turn
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SEQUENCER_H_
