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
  ready_.insert(ordinal);
  GiveTurns(decisions);
}

void Sequencer::OnAdmitted(Ordinal ordinal, uint32_t island, std::vector<Decision>& decisions) {
  auto it = gangs_.find(ordinal);
  if (it == gangs_.end() || !it->second.has_turn || it->second.missing.erase(island) == 0) return;
  if (!it->second.missing.empty()) return;
  decisions.push_back({ordinal, /*release=*/true, std::move(it->second.islands)});
  gangs_.erase(it);
  GiveTurns(decisions);
}

void Sequencer::Remove(Ordinal ordinal, std::vector<Decision>& decisions) {
  ready_.erase(ordinal);
  if (gangs_.erase(ordinal) != 0) GiveTurns(decisions);
}

void Sequencer::GiveTurns(std::vector<Decision>& decisions) {
  if (ready_.empty()) return;
  std::map<uint32_t, Ordinal> highest;  // ordinal with a turn, by island
  for (const auto& [ordinal, gang] : gangs_) {
    if (!gang.has_turn) continue;
    for (uint32_t island : gang.islands) highest[island] = ordinal;
  }
  for (auto next = ready_.begin(); next != ready_.end();) {
    Gang& gang = gangs_.at(*next);
    bool behind = false;  // a higher ordinal has its turn on a shared island
    for (uint32_t island : gang.islands) behind |= highest[island] > *next;
    if (behind) {
      ++next;
      continue;
    }
    for (uint32_t island : gang.islands) highest[island] = *next;
    gang.has_turn = true;
    gang.missing.insert(gang.islands.begin(), gang.islands.end());
    decisions.push_back({*next, /*release=*/false, gang.islands});
    next = ready_.erase(next);
  }
}

}  // namespace gangway::controller
