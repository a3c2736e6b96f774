// Items and node ends; execution is in sim_worker_run.cc.
#include "gangway/simulation/sim_worker.h"

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::simulation {

SimWorker::SimWorker(WorkerKey key, std::vector<uint32_t> devices, World world)
    : key_(key), devices_(std::move(devices)), world_(std::move(world)) {}

void SimWorker::Start(uint64_t incarnation) {
  incarnation_ = incarnation;
  for (uint32_t device : devices_) device_states_[device] = {};
}

void SimWorker::Die() {
  incarnation_ = 0;
  for (const auto& [ordinal, node] : nodes_) {
    for (uint32_t position : node.meeting) world_.meeting->Leave(ordinal, position);
  }
  device_states_.clear();
  storages_.clear();
  nodes_.clear();
  executables_.clear();
  load_failures_.clear();
  staged_.clear();
  world_.references->OnLost(key_);
}

void SimWorker::Later(Duration delay, std::function<void()> what) {
  world_.timeline->After(delay, [this, incarnation = incarnation_, what = std::move(what)] {
    if (incarnation_ == incarnation) what();
  });
}

std::vector<std::pair<uint64_t, uint64_t>> SimWorker::HeldStorages() const {
  std::vector<std::pair<uint64_t, uint64_t>> held;
  for (const auto& [id, storage] : storages_) held.emplace_back(id, storage.session);
  return held;
}

int64_t SimWorker::used_bytes() const {
  int64_t bytes = 0;
  for (const auto& [device, state] : device_states_) bytes += state.used_bytes;
  return bytes;
}

void SimWorker::OnBatch(const wire::IslandBatch& batch) {
  for (const wire::IslandItem& item : batch.items()) OnItem(item);
  Pump();
}

void SimWorker::OnItem(const wire::IslandItem& item) {
  switch (item.item_case()) {
    case wire::IslandItem::kNode:
      return OnNode(item.node());
    case wire::IslandItem::kPeers:
      return OnPeers(item.peers());
    case wire::IslandItem::kRelease:
      for (uint64_t ordinal : item.release().ordinals()) OnRelease(ordinal);
      return;
    case wire::IslandItem::kCancel:
      for (uint64_t ordinal : item.cancel().ordinals()) OnCancel(ordinal, item.cancel().failure());
      return;
    case wire::IslandItem::kFree:
      for (uint64_t storage : item.free().storages()) OnFree(storage);
      return;
    case wire::IslandItem::kLoad: {
      uint64_t id = item.load().executable();
      executables_[id] = std::make_shared<const wire::Load>(item.load());
      wire::Report report;
      report.mutable_loaded()->set_executable(id);
      if (world_.random->Percent(world_.failing_percent)) {
        load_failures_[id] = wire::MakeFailure(absl::StatusCode::kInternal,
                                               "the simulated device rejected the executable");
        *report.mutable_loaded()->mutable_failure() = load_failures_[id];
      }
      return world_.report(std::move(report));
    }
    case wire::IslandItem::kUnload:
      for (uint64_t id : item.unload().executables()) {
        executables_.erase(id);
        load_failures_.erase(id);
      }
      return;
    case wire::IslandItem::kEndSession:
      return OnEndSession(item.end_session().session());
    default:
      return;
  }
}

void SimWorker::AddInputs(const wire::ArrayRef& ref,
                          const google::protobuf::RepeatedField<uint32_t>& devices,
                          std::set<uint64_t>& inputs) const {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      if (IsLocal(devices.Get(position))) inputs.insert(run.storage());
    }
  }
}

void SimWorker::AddOutput(Node& node, uint64_t id,
                          const google::protobuf::RepeatedField<uint32_t>& devices,
                          uint64_t shard_bytes) {
  Storage storage;
  storage.session = node.message.session();
  storage.shard_bytes = shard_bytes;
  for (int i = 0; i < devices.size(); ++i) {
    if (IsLocal(devices.Get(i))) storage.devices[static_cast<uint32_t>(i)] = devices.Get(i);
  }
  if (storage.devices.empty()) return;
  storages_[id] = std::move(storage);
  node.outputs.push_back(id);
  world_.references->OnCreate(key_, id);
}

void SimWorker::OnNode(const wire::Node& message) {
  uint64_t ordinal = message.ordinal();
  Node& node = nodes_[ordinal];
  node.message = message;
  std::set<uint64_t> uses;
  if (message.has_launch()) {
    const wire::Launch& launch = message.launch();
    auto load = executables_.find(launch.executable());
    if (load == executables_.end()) {
      node.failure =
          wire::MakeFailure(absl::StatusCode::kDataLoss, "the executable is not on this worker");
    } else {
      node.load = load->second;
      const auto& devices = node.load->devices();
      for (const wire::ArrayRef& argument : launch.arguments()) AddInputs(argument, devices, uses);
      for (int i = 0; i < launch.results_size(); ++i) {
        AddOutput(node, launch.results(i), devices, node.load->results(i).shard_bytes());
      }
      for (int i = 0; i < devices.size(); ++i) {
        if (IsLocal(devices.Get(i))) node.open.insert(static_cast<uint32_t>(i));
      }
    }
  } else if (message.has_upload()) {
    const wire::Upload& upload = message.upload();
    AddOutput(node, upload.storage(), upload.spec().devices(), upload.spec().shard_bytes());
  } else if (message.has_copy()) {
    const wire::Copy& copy = message.copy();
    AddInputs(copy.source(), copy.source_spec().devices(), uses);
    AddOutput(node, copy.storage(), copy.spec().devices(), copy.spec().shard_bytes());
    for (int i = 0; i < copy.spec().devices_size(); ++i) {
      if (IsLocal(copy.source_spec().devices(i))) node.unsent.insert(static_cast<uint32_t>(i));
      if (IsLocal(copy.spec().devices(i))) node.open.insert(static_cast<uint32_t>(i));
    }
  } else if (message.has_fetch()) {
    AddInputs(message.fetch().source(), message.fetch().spec().devices(), uses);
    for (int i = 0; i < message.fetch().spec().devices_size(); ++i) {
      if (IsLocal(message.fetch().spec().devices(i))) node.open.insert(static_cast<uint32_t>(i));
    }
  }
  uses.insert(node.outputs.begin(), node.outputs.end());
  world_.references->OnNode(key_, ordinal, uses);
}

void SimWorker::OnPeers(const wire::Peers& peers) {
  auto it = nodes_.find(peers.ordinal());
  if (it == nodes_.end()) return;
  for (const wire::Worker& worker : peers.workers()) {
    for (uint32_t device : worker.devices()) it->second.peers[device] = worker.incarnation();
  }
}

// A shard is lost if no Peers entry names its sender.
void SimWorker::CheckPeers(Node& node) {
  const auto& devices = node.message.copy().source_spec().devices();
  for (uint32_t shard : std::set<uint32_t>(node.open)) {
    uint32_t device = devices.Get(static_cast<int>(shard));
    if (IsLocal(device)) node.peers[device] = incarnation_;
    if (node.peers.count(device) != 0) continue;
    node.failure = wire::MakeFailure(absl::StatusCode::kDataLoss, "the sender of a shard is gone");
    node.open.clear();
    node.unsent.clear();
  }
}

void SimWorker::OnRelease(uint64_t ordinal) {
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end()) return;
  Node& node = it->second;
  node.released = true;
  if (node.message.has_copy()) CheckPeers(node);
  std::set<uint64_t> consumed;
  if (node.message.has_launch()) {
    const wire::Launch& launch = node.message.launch();
    for (uint32_t index : launch.donated()) {
      for (const wire::ShardRun& run : launch.arguments(static_cast<int>(index)).runs())
        consumed.insert(run.storage());
    }
    auto failed = load_failures_.find(launch.executable());
    if (failed != load_failures_.end() && !node.failure) node.failure = failed->second;
    if (world_.random->Percent(world_.failing_percent) && !node.failure) {
      node.failure = wire::MakeFailure(absl::StatusCode::kInternal, "the simulated device failed");
    }
    if (node.failure) node.open.clear();
    for (uint32_t position : node.open) {
      uint32_t device = node.load->devices(static_cast<int>(position));
      device_states_[device].queue.emplace_back(ordinal, position);
      world_.order->OnEnqueue(device, incarnation_, ordinal);
    }
  }
  world_.references->OnRelease(key_, ordinal, consumed);
  EndIfOver(ordinal);
}

void SimWorker::OnCancel(uint64_t ordinal, const wire::Failure& failure) {
  auto it = nodes_.find(ordinal);
  if (it == nodes_.end()) return;
  Node& node = it->second;
  if (node.released && node.message.has_fetch()) return;  // it ends by itself
  if (node.released && node.message.has_launch()) return Fail(ordinal, node, failure);
  node.failure = failure;
  if (node.message.has_upload())
    staged_.erase({node.message.session(), node.message.upload().upload()});
  if (!node.released) {
    for (uint64_t id : node.outputs) storages_.at(id).failure = failure;
    nodes_.erase(it);
    return world_.references->OnEnd(key_, ordinal);
  }
  node.open.clear();
  node.unsent.clear();
  node.unacknowledged.clear();
  EndIfOver(ordinal);
}

void SimWorker::OnFree(uint64_t id) {
  world_.references->OnFree(key_, id);
  auto it = storages_.find(id);
  if (it == storages_.end()) return;
  Discharge(it->second);
  storages_.erase(it);
}

void SimWorker::OnEndSession(uint64_t session) {
  ended_sessions_.insert(session);
  std::erase_if(staged_, [session](const auto& entry) { return entry.first.first == session; });
  std::vector<uint64_t> abandoned;
  for (const auto& [ordinal, node] : nodes_) {
    if (node.message.session() == session && node.message.has_upload() && node.released)
      abandoned.push_back(ordinal);
  }
  for (uint64_t ordinal : abandoned) {
    nodes_.at(ordinal).failure =
        wire::MakeFailure(absl::StatusCode::kCancelled, "the upload was abandoned");
    End(ordinal);
  }
}

bool SimWorker::IsOver(const Node& node) const {
  if (!node.released) return false;
  if (node.message.has_upload()) return node.failure.has_value();  // otherwise PumpUpload ends it
  return node.open.empty() && node.unsent.empty() && node.unacknowledged.empty();
}

void SimWorker::EndIfOver(uint64_t ordinal) {
  auto it = nodes_.find(ordinal);
  if (it != nodes_.end() && IsOver(it->second)) End(ordinal);
}

// Results settle together: all shards filled, or all spoiled.
void SimWorker::End(uint64_t ordinal) {
  Node node = std::move(nodes_.at(ordinal));
  nodes_.erase(ordinal);
  for (uint64_t id : node.outputs) {
    Storage& storage = storages_.at(id);
    if (node.failure) {
      storage.failure = node.failure;
      Discharge(storage);
    }
  }
  if (!node.failure) {
    for (const auto& [key, value] : node.made) storages_.at(key.first).content[key.second] = value;
  }
  world_.references->OnEnd(key_, ordinal);
  wire::Report report;
  report.mutable_done()->set_ordinal(ordinal);
  if (node.failure) *report.mutable_done()->mutable_failure() = *node.failure;
  world_.report(std::move(report));
}

}  // namespace gangway::simulation
