// Implementation of outbox.h.
#include "gangway/scheduler/core/outbox.h"

#include <iterator>
#include <utility>

namespace gangway::scheduler {
namespace {

template <typename T>
void Move(std::vector<T>& from, std::vector<T>& to) {
  if (to.empty()) {
    to.swap(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
  }
}

}  // namespace

void Outbox::Send(const std::vector<uint32_t>& workers, wire::IslandItem item) {
  Emit(Up(workers), std::move(item));
}

void Outbox::Send(uint32_t worker, wire::IslandItem item) {
  if (fleet_.IsUp(worker)) Emit({worker}, std::move(item));
}

void Outbox::SendToAll(wire::IslandItem item) {
  std::vector<uint32_t> workers;
  for (uint32_t worker = 0; worker < fleet_.worker_count(); ++worker)
    if (fleet_.IsUp(worker)) workers.push_back(worker);
  Emit(std::move(workers), std::move(item));
}

void Outbox::SendRelease(const std::vector<uint32_t>& workers, Ordinal ordinal,
                         OrderPosition position) {
  wire::IslandItem* item = LatestFor(workers);
  if (item == nullptr || !item->has_release()) item = Emit(Up(workers), {});
  if (item == nullptr) return;  // none of them is up
  item->mutable_release()->add_ordinals(ordinal.number());
  item->mutable_release()->add_order_positions(position.number());
}

// A worker frees the storages of an item before its shards.
wire::Free* Outbox::FreesFor(const std::vector<uint32_t>& workers, bool is_storage) {
  wire::IslandItem* item = LatestFor(workers);
  const bool joins = item != nullptr && item->has_free() &&
                     item->free().storages_size() + item->free().shards_size() < kFreesMax &&
                     (!is_storage || item->free().shards_size() == 0);
  if (!joins) item = Emit(Up(workers), {});
  return item == nullptr ? nullptr : item->mutable_free();
}

void Outbox::SendFree(const std::vector<uint32_t>& workers, StorageId storage) {
  wire::Free* frees = FreesFor(workers, /*is_storage=*/true);
  if (frees != nullptr) frees->add_storages(storage.number());
}

void Outbox::SendFree(const std::vector<uint32_t>& workers, const ShardRange& shards) {
  wire::Free* frees = FreesFor(workers, /*is_storage=*/false);
  if (frees == nullptr) return;
  wire::ShardRun* run = frees->add_shards();
  run->set_storage(shards.storage.number());
  run->set_first(shards.first);
  run->set_count(shards.count);
}

std::vector<uint32_t> Outbox::Up(const std::vector<uint32_t>& workers) const {
  std::vector<uint32_t> up;
  up.reserve(workers.size());
  for (const uint32_t worker : workers)
    if (fleet_.IsUp(worker)) up.push_back(worker);
  return up;
}

wire::IslandItem* Outbox::LatestFor(const std::vector<uint32_t>& workers) {
  std::optional<size_t> index;
  size_t up = 0;
  for (const uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    if (latest_[worker].step != step_ ||
        latest_[worker].index != index.value_or(latest_[worker].index))
      return nullptr;
    index = latest_[worker].index;
    ++up;
  }
  if (!index || actions_.to_workers[*index].workers.size() != up) return nullptr;
  return &actions_.to_workers[*index].item;
}

void Outbox::ReportReleased(Ordinal ordinal) {
  wire::Report report;
  report.mutable_released()->add_ordinals(ordinal.number());
  Report(std::move(report));
}

wire::IslandItem* Outbox::Emit(std::vector<uint32_t> workers, wire::IslandItem item) {
  if (workers.empty()) return nullptr;
  for (const uint32_t worker : workers) latest_[worker] = {step_, actions_.to_workers.size()};
  actions_.to_workers.push_back({std::move(workers), std::move(item)});
  return &actions_.to_workers.back().item;
}

void Outbox::TakeInto(Actions& actions) {
  Move(actions_.to_workers, actions.to_workers);
  Move(actions_.to_controller, actions.to_controller);
  Move(actions_.notices, actions.notices);
  Move(actions_.unloaded, actions.unloaded);
  Move(actions_.replaced, actions.replaced);
  ++step_;
}

}  // namespace gangway::scheduler
