// Implementation of sequencer.h.
#include "gangway/controller/core/sequencer.h"

#include <utility>

namespace gangway::controller {

void Sequencer::Add(Ordinal ordinal, std::vector<uint32_t> islands) {
  Gang& gang = gangs_[ordinal];
  gang.missing.insert(islands.begin(), islands.end());
  gang.islands = std::move(islands);
}

void Sequencer::OnReady(Ordinal ordinal, uint32_t island, std::vector<Decision>& decisions) {
  auto it = gangs_.find(ordinal);
  if (it == gangs_.end() || it->second.has_turn || it->second.missing.erase(island) == 0) return;
  if (!it->second.missing.empty()) return;
  if (!TryGiveTurn(ordinal, it->second, decisions)) ready_.insert(ordinal);
}

void Sequencer::OnAdmitted(Ordinal ordinal, uint32_t island, std::vector<Decision>& decisions) {
  auto it = gangs_.find(ordinal);
  if (it == gangs_.end() || !it->second.has_turn || it->second.missing.erase(island) == 0) return;
  if (!it->second.missing.empty()) return;
  Gang gang = std::move(it->second);
  gangs_.erase(it);
  decisions.push_back({ordinal, /*release=*/true, gang.islands});
  EndTurn(ordinal, gang, decisions);
}

void Sequencer::Remove(Ordinal ordinal, std::vector<Decision>& decisions) {
  auto it = gangs_.find(ordinal);
  if (it == gangs_.end()) return;
  Gang gang = std::move(it->second);
  gangs_.erase(it);
  ready_.erase(ordinal);
  if (gang.has_turn) EndTurn(ordinal, gang, decisions);
}

bool Sequencer::TryGiveTurn(Ordinal ordinal, Gang& gang, std::vector<Decision>& decisions) {
  for (uint32_t island : gang.islands) {
    auto turns = turns_.find(island);
    if (turns != turns_.end() && *turns->second.rbegin() > ordinal) return false;
  }
  for (uint32_t island : gang.islands) turns_[island].insert(ordinal);
  gang.has_turn = true;
  gang.missing.insert(gang.islands.begin(), gang.islands.end());
  decisions.push_back({ordinal, /*release=*/false, gang.islands});
  return true;
}

void Sequencer::EndTurn(Ordinal ordinal, const Gang& gang, std::vector<Decision>& decisions) {
  bool was_highest = false;
  for (uint32_t island : gang.islands) {
    auto turns = turns_.find(island);
    was_highest |= *turns->second.rbegin() == ordinal;
    turns->second.erase(ordinal);
    if (turns->second.empty()) turns_.erase(turns);
  }
  if (!was_highest) return;  // the waiting gangs still have a higher one before them
  for (auto next = ready_.begin(); next != ready_.end();) {
    next = TryGiveTurn(*next, gangs_.at(*next), decisions) ? ready_.erase(next) : std::next(next);
  }
}

}  // namespace gangway::controller
