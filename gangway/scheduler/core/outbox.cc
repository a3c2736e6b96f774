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
  std::optional<uint32_t> latest;  // gets the item itself, the ones before it copies
  for (uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    if (latest) Emit(*latest, item);
    latest = worker;
  }
  if (latest) Emit(*latest, std::move(item));
}

void Outbox::Send(uint32_t worker, wire::IslandItem item) {
  if (fleet_.IsUp(worker)) Emit(worker, std::move(item));
}

void Outbox::SendToAll(const wire::IslandItem& item) {
  for (uint32_t worker = 0; worker < fleet_.worker_count(); ++worker) Send(worker, item);
}

void Outbox::SendRelease(uint32_t worker, Ordinal ordinal, OrderPosition position) {
  const wire::IslandItem* latest = LatestFor(worker);
  if (latest == nullptr || !latest->has_release()) Emit(worker, {});
  wire::Release* release = LatestFor(worker)->mutable_release();
  release->add_ordinals(ordinal.number());
  release->add_places(position.number());
}

bool Outbox::TakesFrees(uint32_t worker) {
  const wire::IslandItem* latest = LatestFor(worker);
  return latest != nullptr && latest->has_free() &&
         latest->free().storages_size() + latest->free().shards_size() < kFreesMax;
}

// A worker frees the storages of an item before its shards.
void Outbox::SendFree(const std::vector<uint32_t>& workers, StorageId storage) {
  for (uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    if (!TakesFrees(worker) || LatestFor(worker)->free().shards_size() > 0) Emit(worker, {});
    LatestFor(worker)->mutable_free()->add_storages(storage.number());
  }
}

void Outbox::SendFree(const std::vector<uint32_t>& workers, const ShardRange& shards) {
  for (uint32_t worker : workers) {
    if (!fleet_.IsUp(worker)) continue;
    if (!TakesFrees(worker)) Emit(worker, {});
    wire::ShardRun* run = LatestFor(worker)->mutable_free()->add_shards();
    run->set_storage(shards.storage.number());
    run->set_first(shards.first);
    run->set_count(shards.count);
  }
}

wire::IslandItem* Outbox::LatestFor(uint32_t worker) {
  if (latest_[worker].step != step_) return nullptr;
  return &actions_.to_workers[latest_[worker].index].second;
}

void Outbox::ReportReleased(Ordinal ordinal) {
  wire::Report report;
  report.mutable_released()->add_ordinals(ordinal.number());
  Report(std::move(report));
}

void Outbox::Emit(uint32_t worker, wire::IslandItem item) {
  latest_[worker] = {step_, actions_.to_workers.size()};
  actions_.to_workers.emplace_back(worker, std::move(item));
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
