// Implementation of introductions.h.
#include "gangway/scheduler/core/introductions.h"

#include <bit>
#include <utility>

namespace gangway::scheduler {

std::vector<uint32_t> Introductions::Workers::Without(const Workers& others) const {
  std::vector<uint32_t> workers;
  for (uint32_t i = 0; i < words_.size(); ++i) {
    for (uint64_t left = words_[i] & ~others.words_[i]; left != 0; left &= left - 1)
      workers.push_back(i * kBits + static_cast<uint32_t>(std::countr_zero(left)));
  }
  return workers;
}

Introductions::Introductions(const Fleet& fleet, Outbox& outbox)
    : fleet_(fleet), outbox_(outbox), known_(fleet.worker_count(), Workers(fleet.worker_count())) {}

void Introductions::Introduce(const std::vector<uint32_t>& others,
                              const std::vector<uint32_t>& workers) {
  Workers wanted(fleet_.worker_count());
  for (const uint32_t other : others) wanted.Add(other);
  // By what they do not know: most often that is the same for all.
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> untold;
  for (const uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    std::vector<uint32_t> unknown = wanted.Without(known_[worker]);
    if (unknown.empty()) continue;
    for (const uint32_t other : unknown)
      if (fleet_.IsUp(other)) known_[worker].Add(other);
    untold[std::move(unknown)].push_back(worker);
  }
  for (const auto& [unknown, receivers] : untold) outbox_.Send(receivers, Describe(unknown));
}

wire::IslandItem Introductions::Describe(const std::vector<uint32_t>& others) const {
  wire::IslandItem item;
  for (const uint32_t other : others)
    *item.mutable_peers()->add_workers() = fleet_.DescribeToWorkers(other);
  return item;
}

void Introductions::IntroduceFar(const wire::Worker& other, const std::vector<uint32_t>& workers) {
  const Incarnation incarnation(other.incarnation());
  Far& far = far_.try_emplace({other.island(), other.index()},
                              Far{incarnation, Workers(fleet_.worker_count())})
                 .first->second;
  if (std::exchange(far.incarnation, incarnation) != incarnation) far.told.Clear();
  std::vector<uint32_t> receivers;
  for (const uint32_t worker : workers) {
    if (!fleet_.IsUp(worker) || far.told.Has(worker)) continue;
    far.told.Add(worker);
    receivers.push_back(worker);
  }
  if (receivers.empty()) return;
  wire::IslandItem item;
  wire::Worker& described = *item.mutable_peers()->add_workers();
  described = other;
  described.set_island_epoch(fleet_.epoch());
  outbox_.Send(receivers, std::move(item));
}

void Introductions::NoteDown(uint32_t worker) {
  known_[worker].Clear();
  for (auto& [island_and_index, far] : far_) far.told.Remove(worker);
  std::vector<uint32_t> receivers;
  for (uint32_t other = 0; other < known_.size(); ++other) {
    if (!known_[other].Has(worker)) continue;
    known_[other].Remove(worker);
    receivers.push_back(other);
  }
  outbox_.Send(receivers, Describe({worker}));
}

}  // namespace gangway::scheduler
