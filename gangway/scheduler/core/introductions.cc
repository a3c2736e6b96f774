// Implementation of introductions.h.
#include "gangway/scheduler/core/introductions.h"

#include <bit>
#include <utility>

namespace gangway::scheduler {

template <typename Call>
void Introductions::Workers::ForEachNotIn(const Workers& others, Call call) const {
  for (uint32_t i = 0; i < words_.size(); ++i) {
    for (uint64_t left = words_[i] & ~others.words_[i]; left != 0; left &= left - 1)
      call(i * kBits + static_cast<uint32_t>(std::countr_zero(left)));
  }
}

Introductions::Introductions(const Fleet& fleet, Outbox& outbox)
    : fleet_(fleet), outbox_(outbox), known_(fleet.worker_count(), Workers(fleet.worker_count())) {}

void Introductions::Introduce(const std::vector<uint32_t>& others,
                              const std::vector<uint32_t>& workers) {
  Workers wanted(fleet_.worker_count());
  for (const uint32_t other : others) wanted.Add(other);
  std::map<uint32_t, std::vector<uint32_t>> untold;  // by worker: those that do not know it
  for (const uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    wanted.ForEachNotIn(known_[worker], [&](uint32_t other) {
      untold[other].push_back(worker);
      if (fleet_.IsUp(other)) known_[worker].Add(other);
    });
  }
  for (const auto& [other, receivers] : untold) {
    wire::IslandItem item;
    *item.mutable_member() = fleet_.DescribeToWorkers(other);
    outbox_.Send(receivers, std::move(item));
  }
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
  *item.mutable_member() = other;
  item.mutable_member()->set_island_epoch(fleet_.epoch());
  outbox_.Send(receivers, std::move(item));
}

void Introductions::NoteDown(uint32_t worker) {
  known_[worker].Clear();
  for (auto& [place, far] : far_) far.told.Remove(worker);
  std::vector<uint32_t> receivers;
  for (uint32_t other = 0; other < known_.size(); ++other) {
    if (!known_[other].Has(worker)) continue;
    known_[other].Remove(worker);
    receivers.push_back(other);
  }
  if (receivers.empty()) return;
  wire::IslandItem item;
  *item.mutable_member() = fleet_.DescribeToWorkers(worker);
  outbox_.Send(receivers, std::move(item));
}

}  // namespace gangway::scheduler
