// Implementation of wire_tap.h.
#include "gangway/simulation/wire_tap.h"

#include "gangway/simulation/processes.h"

namespace gangway::simulation {
namespace {

std::map<uint32_t, uint32_t> IslandOf(const std::vector<std::vector<uint32_t>>& islands) {
  std::map<uint32_t, uint32_t> island_of;
  uint32_t device = 0;
  for (uint32_t island = 0; island < islands.size(); ++island) {
    for (uint32_t count : islands[island]) {
      for (uint32_t i = 0; i < count; ++i) island_of[device++] = island;
    }
  }
  return island_of;
}

void AddShards(const wire::ShardRun& run, std::set<ReferenceChecker::Shard>& shards) {
  for (uint32_t i = 0; i < run.count(); ++i) shards.emplace(run.storage(), run.first() + i);
}

}  // namespace

WireTap::WireTap(Violations* violations, const std::vector<std::vector<uint32_t>>& islands)
    : violations_(violations), island_of_(IslandOf(islands)) {
  uint32_t device = 0;
  for (uint32_t island = 0; island < islands.size(); ++island) {
    for (uint32_t index = 0; index < islands[island].size(); ++index) {
      Worker& worker = workers_[Processes::WorkerName({island, index})];
      worker.island = island;
      for (uint32_t i = 0; i < islands[island][index]; ++i) worker.devices.insert(device++);
    }
  }
  Begin(0);
}

void WireTap::Begin(uint64_t epoch) {
  Finish();
  epoch_ = epoch;
  for (auto [device, island] : island_of_) orders_.try_emplace(island, violations_);
  releases_ = std::make_unique<ReleaseChecker>(violations_, island_of_);
  references_ = std::make_unique<ReferenceChecker>(violations_);
  loads_.clear();
  consumed_.clear();
}

void WireTap::OnSend(const transport::SimNetwork::LinkState& link, bool to_server,
                     const wire::Frame& frame) {
  auto found = workers_.find(link.client.substr(0, link.client.find('#')));
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  if (frame.epoch() < epoch_ && frame.epoch() != 0) return;  // of a controller that is gone
  if (frame.epoch() > epoch_) Begin(frame.epoch());
  if (Clock::now() != step_at_) EndStep();
  step_at_ = Clock::now();
  if (to_server) {
    // A new life: the nodes of the last one have ended, or end now.
    if (frame.has_hello() && frame.hello().role() == wire::ROLE_WORKER &&
        worker.life != link.client) {
      worker.life = link.client;
      releases_->OnAllEnded(worker.island);
    }
    if (link.client != worker.life || !frame.has_report_batch()) return;
    for (const wire::Report& report : frame.report_batch().reports()) {
      if (!report.has_done()) continue;
      releases_->OnEnded(worker.island, report.done().ordinal());
      references_->OnEnd(worker.life, report.done().ordinal());
    }
  } else if (frame.has_island_batch() && link.client == worker.life) {
    OnBatch(worker, frame.island_batch());
  }
}

void WireTap::OnBatch(const Worker& worker, const wire::IslandBatch& batch) {
  for (const wire::IslandItem& item : batch.items()) {
    switch (item.item_case()) {
      case wire::IslandItem::kLoad:
        releases_->OnLoad(item.load());
        loads_[item.load().executable()] = item.load();
        loads_[item.load().executable()].clear_serialized();
        break;
      case wire::IslandItem::kNode:
        releases_->OnSent(worker.island, item.node());
        OnNode(worker, item.node());
        break;
      case wire::IslandItem::kRelease:
        for (uint64_t ordinal : item.release().ordinals()) {
          step_.emplace_back(worker.island, ordinal);
          orders_.at(worker.island).OnRelease(worker.life, ordinal);
          references_->OnRelease(worker.life, ordinal, consumed_[ordinal]);
        }
        break;
      case wire::IslandItem::
          kCancel:  // a released node still ends with Done, but may count as ended
        for (uint64_t ordinal : item.cancel().ordinals()) {
          releases_->OnEnded(worker.island, ordinal);
          references_->OnEnd(worker.life, ordinal);
        }
        break;
      case wire::IslandItem::kFree:
        for (uint64_t storage : item.free().storages()) references_->OnFree(worker.life, storage);
        for (const wire::ShardRun& run : item.free().shards()) {
          std::set<ReferenceChecker::Shard> freed;
          AddShards(run, freed);
          for (const auto& shard : freed) references_->OnFreeShard(worker.life, shard);
        }
        break;
      default:
        break;
    }
  }
}

void WireTap::OnNode(const Worker& worker, const wire::Node& node) {
  std::set<ReferenceChecker::Shard> shards;
  if (node.has_launch()) {
    const wire::Launch& launch = node.launch();
    const wire::Load& load = loads_[launch.executable()];
    for (const wire::ArrayRef& argument : launch.arguments())
      AddInputs(worker, argument, load.devices(), shards);
    for (uint64_t result : launch.results()) AddOutput(worker, result, load.devices(), shards);
    std::set<ReferenceChecker::Shard>& consumed = consumed_[node.ordinal()];
    for (uint32_t index : launch.donated()) {
      if (index >= static_cast<uint32_t>(launch.arguments_size())) continue;
      for (const wire::ShardRun& run : launch.arguments(static_cast<int>(index)).runs())
        AddShards(run, consumed);
    }
  } else if (node.has_upload()) {
    AddOutput(worker, node.upload().storage(), node.upload().spec().devices(), shards);
  } else if (node.has_put()) {
    for (const wire::PutArray& array : node.put().arrays())
      AddOutput(worker, array.storage(), node.put().devices(), shards);
  } else if (node.has_copy()) {
    for (const wire::CopiedArray& array : node.copy().arrays()) {
      AddInputs(worker, array.source(), node.copy().source_devices(), shards);
      AddOutput(worker, array.storage(), node.copy().devices(), shards);
    }
  } else if (node.has_fetch()) {
    AddInputs(worker, node.fetch().source(), node.fetch().devices(), shards);
  }
  references_->OnNode(worker.life, node.ordinal(), shards);
}

void WireTap::AddInputs(const Worker& worker, const wire::ArrayRef& ref,
                        const google::protobuf::RepeatedField<uint32_t>& devices,
                        std::set<ReferenceChecker::Shard>& shards) const {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      if (worker.devices.contains(devices.Get(position)))
        shards.emplace(run.storage(), run.first() + i);
    }
  }
}

void WireTap::AddOutput(const Worker& worker, uint64_t storage,
                        const google::protobuf::RepeatedField<uint32_t>& devices,
                        std::set<ReferenceChecker::Shard>& shards) {
  for (int i = 0; i < devices.size(); ++i) {
    if (!worker.devices.contains(devices.Get(i))) continue;
    const ReferenceChecker::Shard shard(storage, static_cast<uint32_t>(i));
    references_->OnCreate(worker.life, shard);
    shards.insert(shard);
  }
}

void WireTap::EndStep() {
  releases_->OnReleased(step_);
  step_.clear();
}

void WireTap::Finish() {
  if (releases_ == nullptr) return;
  EndStep();
  for (auto& [island, order] : orders_) order.Finish();
  orders_.clear();
  released_count_ += releases_->released_count();
}

}  // namespace gangway::simulation
