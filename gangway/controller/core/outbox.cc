// Implementation of outbox.h.
#include "gangway/controller/core/outbox.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/names.h"

namespace gangway::controller {
namespace {

constexpr int kFreesMax = 4096;  // in one item, which no link cuts into frames

// Whether more frees may be added to the item.
bool TakesFrees(const wire::IslandItem& item) {
  return item.has_free() && item.free().storages_size() + item.free().shards_size() < kFreesMax;
}

using Spoiled = std::map<StorageId, wire::FailureRef>;

// The failure of the node's first spoiled input, if any.
wire::FailureRef SpoiledInput(const wire::Node& node, const Spoiled& spoiled) {
  wire::FailureRef failure;
  auto look = [&failure, &spoiled](const wire::ArrayRef& ref) {
    for (const wire::ShardRun& run : ref.runs()) {
      auto it = spoiled.find(StorageId(run.storage()));
      if (it != spoiled.end() && !failure) failure = it->second;
    }
  };
  for (const wire::ArrayRef& argument : node.launch().arguments()) look(argument);
  for (const wire::CopiedArray& array : node.copy().arrays()) look(array.source());
  look(node.fetch().source());
  return failure;
}

void SpoilResults(const wire::Node& node, const wire::FailureRef& why, Spoiled& spoiled) {
  for (const uint64_t result : node.launch().results()) spoiled[StorageId(result)] = why;
  for (const wire::CopiedArray& array : node.copy().arrays())
    spoiled[StorageId(array.storage())] = why;
  if (node.has_upload()) spoiled[StorageId(node.upload().storage())] = why;
  for (const wire::PutArray& array : node.put().arrays()) spoiled[StorageId(array.storage())] = why;
}

}  // namespace

Outbox::Outbox(uint32_t island_count, const std::set<uint32_t>& remote,
               std::chrono::milliseconds wait_max)
    : wait_max_(wait_max), islands_(island_count) {
  for (const uint32_t island : remote) {
    if (island >= island_count) continue;
    islands_[island].remote = true;
    islands_[island].up = false;
  }
}

Actions Outbox::Take() { return std::exchange(actions_, {}); }

void Outbox::ToClient(SessionId session, wire::SessionEvent event) {
  actions_.to_clients.emplace_back(session, std::move(event));
}

void Outbox::ToIsland(uint32_t index, wire::IslandItem item) {
  Island& island = islands_[index];
  if (island.remote) {
    if (item.has_load()) island.loads[ExecutableId(item.load().executable())] = item.load();
    for (const uint64_t executable : item.unload().executables())
      island.loads.erase(ExecutableId(executable));
  }
  if (island.up) {
    actions_.to_islands.emplace_back(index, std::move(item));
    return;
  }
  if (item.has_node()) island.waiting[Ordinal(item.node().ordinal())] = now_;
  island.held.push_back(std::move(item));
}

void Outbox::ToIslands(const std::vector<uint32_t>& islands, wire::IslandItem item) {
  for (size_t i = 1; i < islands.size(); ++i) ToIsland(islands[i], item);
  if (!islands.empty()) ToIsland(islands[0], std::move(item));
}

wire::Free& Outbox::FreesOf(uint32_t index) {
  std::deque<wire::IslandItem>& held = islands_[index].held;
  auto& out = actions_.to_islands;
  if (!islands_[index].up) {
    if (held.empty() || !TakesFrees(held.back())) held.emplace_back();
    return *held.back().mutable_free();
  }
  if (out.empty() || out.back().first != index || !TakesFrees(out.back().second))
    out.emplace_back(index, wire::IslandItem());
  return *out.back().second.mutable_free();
}

// The new scheduler knows nothing yet: the loads that it needs come first in `held`.
bool Outbox::OnSchedulerUp(uint32_t index, uint64_t process_id) {
  if (index >= islands_.size() || !islands_[index].remote) return false;
  Island& island = islands_[index];
  island.up = true;
  island.process_id = process_id;
  island.waiting.clear();
  for (wire::IslandItem& item : std::exchange(island.held, {}))
    actions_.to_islands.emplace_back(index, std::move(item));
  return true;
}

bool Outbox::OnSchedulerDown(uint32_t index) {
  if (index >= islands_.size() || !islands_[index].up || !islands_[index].remote) return false;
  Island& island = islands_[index];
  island.up = false;
  for (const auto& [id, load] : island.loads) *island.held.emplace_back().mutable_load() = load;
  return true;
}

std::vector<Outbox::Expired> Outbox::TakeExpired() {
  std::vector<Expired> expired;
  for (uint32_t index = 0; index < islands_.size(); ++index) {
    const auto& waiting = islands_[index].waiting;
    if (!waiting.empty() && IsLate(waiting.begin()->second)) Expire(index, expired);
  }
  return expired;
}

void Outbox::Expire(uint32_t index, std::vector<Expired>& expired) {
  Island& island = islands_[index];
  const wire::Failure failure =
      wire::MakeFailure(absl::StatusCode::kDeadlineExceeded,
                        absl::StrCat(SchedulerName(index), ", which this needs, has been down for ",
                                     wait_max_.count(), " ms"),
                        "See `gangway status`; start the scheduler.");
  Spoiled spoiled;
  std::deque<wire::IslandItem> kept;
  for (wire::IslandItem& item : island.held) {
    const Ordinal ordinal(item.node().ordinal());
    wire::FailureRef why = SpoiledInput(item.node(), spoiled);
    if (item.has_node() && !why && IsLate(island.waiting.at(ordinal))) {
      wire::Failure late = failure;
      late.set_gang(ordinal.number());
      late.set_worker(SchedulerName(index));
      why = wire::Share(std::move(late));
    }
    if (!why) {
      kept.push_back(std::move(item));
      continue;
    }
    island.waiting.erase(ordinal);
    SpoilResults(item.node(), why, spoiled);
    expired.push_back({index, ordinal, std::move(why)});
  }
  island.held = std::move(kept);
}

std::optional<Time> Outbox::next_deadline() const {
  std::optional<Time> next;
  for (const Island& island : islands_) {
    if (island.waiting.empty()) continue;  // the lowest ordinal has waited longest
    const Time due = island.waiting.begin()->second + wait_max_;
    if (!next || due < *next) next = due;
  }
  return next;
}

std::string Outbox::AbsentSchedulers() const {
  std::string absent;
  for (size_t i = 0; i < islands_.size(); ++i)
    if (!islands_[i].up) AppendName(SchedulerName(i), absent);
  return absent;
}

void Outbox::FillSchedulers(wire::StatusReply& reply) const {
  for (uint32_t i = 0; i < islands_.size(); ++i) {
    if (!islands_[i].remote) continue;
    auto* scheduler = reply.add_schedulers();
    scheduler->set_island(i);
    scheduler->set_up(islands_[i].up);
    scheduler->set_process_id(islands_[i].up ? islands_[i].process_id : 0);
  }
}

}  // namespace gangway::controller
