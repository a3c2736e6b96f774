// Implementation of checkers.h.
#include "gangway/simulation/checkers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::simulation {

// --- GS-1 ---

// Takes nodes that are first in all their queues until no such node is left. A node that remains is
// in or behind a cycle.
void OrderChecker::Finish() {
  std::map<uint64_t, std::set<uint64_t>> after;
  std::map<uint64_t, int> before_count;
  for (const auto& [name, queue] : queues_) {
    for (size_t i = 0; i < queue.size(); ++i) {
      before_count.try_emplace(queue[i], 0);
      if (i > 0 && after[queue[i - 1]].insert(queue[i]).second) ++before_count[queue[i]];
    }
  }
  std::vector<uint64_t> free;
  for (auto [gang, count] : before_count) {
    if (count == 0) free.push_back(gang);
  }
  size_t taken = 0;
  while (!free.empty()) {
    uint64_t gang = free.back();
    free.pop_back();
    ++taken;
    for (uint64_t next : after[gang]) {
      if (--before_count[next] == 0) free.push_back(next);
    }
  }
  if (taken == before_count.size()) return;
  for (auto [gang, count] : before_count) {
    if (count == 0) continue;
    std::vector<std::string> places;
    for (const auto& [name, queue] : queues_) {
      auto at = std::find(queue.begin(), queue.end(), gang);
      if (at == queue.end()) continue;
      std::vector<uint64_t> around(std::max(queue.begin(), at - 3), std::min(queue.end(), at + 4));
      places.push_back(absl::StrCat(name, ": ...", absl::StrJoin(around, " "), "..."));
    }
    violations_->Add("GS-1",
                     absl::StrCat("no single order fits the workers' queues; node ", gang,
                                  " is in or behind a cycle: ", absl::StrJoin(places, "; ")));
    return;
  }
}

// --- GS-4 ---

// `to`: a copy's destination. Both islands of shard i, source and destination, count as readers.
void ReleaseChecker::AddInputs(const wire::ArrayRef& ref, const Devices& devices, const Devices* to,
                               std::vector<Input>& inputs) const {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      uint32_t island = island_of_.at(devices[position]);
      inputs.push_back({island, island, run.storage()});
      if (to != nullptr) inputs.push_back({island, island_of_.at((*to)[position]), run.storage()});
    }
  }
}

void ReleaseChecker::OnLoad(const wire::Load& load) { places_[load.executable()] = load.devices(); }

void ReleaseChecker::OnAllEnded(uint32_t island) {
  for (auto it = sent_.lower_bound({island, 0}); it != sent_.end() && it->first == island; ++it)
    ended_.insert(*it);
}

void ReleaseChecker::OnSent(uint32_t island, const wire::Node& node) {
  uint64_t ordinal = node.ordinal();
  sent_.emplace(island, ordinal);
  std::vector<Input> inputs;
  switch (node.kind_case()) {
    case wire::Node::kLaunch:
      for (uint64_t result : node.launch().results()) producers_[result] = {ordinal, false};
      for (const wire::ArrayRef& argument : node.launch().arguments())
        AddInputs(argument, places_[node.launch().executable()], nullptr, inputs);
      break;
    case wire::Node::kUpload:
      producers_[node.upload().storage()] = {ordinal, true};
      break;
    case wire::Node::kPut:
      for (const wire::PutArray& array : node.put().arrays())
        producers_[array.storage()] = {ordinal, false};
      break;
    case wire::Node::kCopy:
      for (const wire::CopiedArray& array : node.copy().arrays()) {
        producers_[array.storage()] = {ordinal, false};
        AddInputs(array.source(), node.copy().source_devices(), &node.copy().devices(), inputs);
      }
      break;
    case wire::Node::kFetch:
      AddInputs(node.fetch().source(), node.fetch().devices(), nullptr, inputs);
      break;
    default:
      break;
  }
  inputs_[ordinal] = std::move(inputs);
}

void ReleaseChecker::OnReleased(const std::vector<std::pair<uint32_t, uint64_t>>& together) {
  released_.insert(together.begin(), together.end());
  for (auto [island, ordinal] : together) {
    for (const Input& input : inputs_[ordinal]) {
      auto producer = producers_.find(input.storage);
      if (input.reader_island != island || producer == producers_.end()) continue;
      std::pair<uint32_t, uint64_t> key(input.island, producer->second.ordinal);
      if (ended_.count(key) != 0 || (!producer->second.upload && released_.count(key) != 0))
        continue;
      violations_->Add(
          "GS-4",
          absl::StrCat("island ", island, " released node ", ordinal, ", which reads storage ",
                       input.storage, ", before its producer, ",
                       producer->second.upload ? "upload " : "node ", key.second, ", was ",
                       producer->second.upload ? "ended" : "released", " on island ", key.first));
    }
  }
}

// --- OB-1, OB-2 ---

void ReferenceChecker::OnNode(const std::string& worker, uint64_t ordinal,
                              const std::set<Shard>& shards) {
  State& state = workers_[worker];
  for (const Shard& shard : shards) {
    if (state.shards.contains(shard)) continue;
    violations_->Add("OB-1", absl::StrCat("node ", ordinal, " on ", worker, " uses shard ",
                                          shard.second, " of storage ", shard.first,
                                          ", which is absent: freed too early, or never created"));
  }
  state.nodes[ordinal] = {shards, false};
}

void ReferenceChecker::OnRelease(const std::string& worker, uint64_t ordinal,
                                 const std::set<Shard>& consumed) {
  State& state = workers_[worker];
  state.nodes[ordinal].released = true;
  if (consumed.empty()) return;
  for (const auto& [other, node] : state.nodes) {
    if (node.released) continue;
    for (const Shard& shard : consumed) {
      if (!node.shards.contains(shard)) continue;
      violations_->Add(
          "OB-1", absl::StrCat("gang ", ordinal, " was released on ", worker,
                               " and consumes shard ", shard.second, " of storage ", shard.first,
                               ", which node ", other, " has yet to read"));
    }
  }
}

void ReferenceChecker::OnFree(const std::string& worker, uint64_t storage) {
  const std::set<Shard>& all = workers_[worker].shards;
  const std::vector<Shard> shards(all.lower_bound({storage, 0}), all.lower_bound({storage + 1, 0}));
  for (const Shard& shard : shards) OnFreeShard(worker, shard);
}

void ReferenceChecker::OnFreeShard(const std::string& worker, Shard shard) {
  State& state = workers_[worker];
  state.shards.erase(shard);
  for (const auto& [ordinal, node] : state.nodes) {
    if (!node.shards.contains(shard)) continue;
    violations_->Add(
        "OB-1", absl::StrCat("shard ", shard.second, " of storage ", shard.first, " was freed on ",
                             worker, " while node ", ordinal, " uses it"));
  }
}

// --- GS-2 ---

void MemoryChecker::OnUse(const std::string& worker, int device, int64_t bytes) {
  if (budget_bytes_ == 0 || bytes <= static_cast<int64_t>(budget_bytes_)) return;
  violations_->Add("GS-2", absl::StrCat("device ", device, " of ", worker, " has ", bytes,
                                        " bytes, the budget is ", budget_bytes_));
}

}  // namespace gangway::simulation
