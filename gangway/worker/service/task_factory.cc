// Implementation of task_factory.h.
#include "gangway/worker/service/task_factory.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/check.h"
#include "gangway/base/trace.h"
#include "gangway/worker/service/launch/launch_task.h"
#include "gangway/worker/service/transfer/copy_task.h"
#include "gangway/worker/service/transfer/fetch_task.h"
#include "gangway/worker/service/transfer/upload_task.h"

namespace gangway::worker {

TaskFactory::TaskFactory(Options options) : options_(std::move(options)) {}

std::shared_ptr<NodeTask> TaskFactory::Make(const PrepareLaunch& action) {
  std::vector<LaunchTask::Position> positions;
  positions.reserve(action.positions.size());
  for (const LaunchPosition& each : action.positions) {
    LaunchTask::Position position{.number = each.position, .device = each.device};
    position.arguments = options_.storages->FindAll(each.arguments, each.device);
    position.results.reserve(action.results.size());
    for (ShardKey result : action.results) {
      result.shard = each.position;
      position.results.push_back(options_.storages->Find(result, each.device));
    }
    positions.push_back(std::move(position));
  }
  auto task = std::make_shared<LaunchTask>(environment_, action, action.held_executable.get(),
                                           std::move(positions),
                                           options_.executables->CollectivesOf(action));
  Trace(TraceKind::kPrepare, 0, {}, action.ordinal, action.executable.number());
  return task;
}

std::shared_ptr<NodeTask> TaskFactory::Make(PrepareCopy& action) {
  const LocalStorages& storages = *options_.storages;
  CopyTask::Parts parts{.memory_kind = std::move(action.memory_kind),
                        .token = std::move(action.token),
                        .session = action.session};
  for (const PrepareCopy::Move& move : action.moves) {
    parts.moves.push_back(
        {storages.FindAll(move.from, move.from_device), storages.FindAll(move.to, move.to_device)});
  }
  for (const PrepareCopy::Send& send : action.sends) {
    parts.sends.push_back(
        {storages.FindAll(send.from, send.device), send.position, send.to_device});
  }
  for (const PrepareCopy::Receive& receive : action.receives) {
    parts.receives.push_back(
        {storages.FindAll(receive.to, receive.device), receive.position, receive.from_device});
  }
  if (!action.receives.empty()) {
    for (const ShardKey& key : action.receives.front().to)
      parts.specs.push_back(key.held.get()->spec);
  }
  auto task = std::make_shared<CopyTask>(environment_, action.ordinal, options_.backend,
                                         options_.transfers, std::move(parts));
  Trace(TraceKind::kPrepare, 0, {}, action.ordinal);
  return task;
}

// The bytes count as staged until their buffers exist, as those of uploads do.
std::shared_ptr<NodeTask> TaskFactory::Make(PreparePut& action) {
  uint64_t bytes = 0;
  for (const PreparePut::Part& part : action.parts) bytes += part.bytes.size();
  put_bytes_ += bytes;
  auto taken = options_.staging->Take(action.session, bytes, StagingMemory::Order::kIfRoom);
  const absl::Status refused = taken.status();
  std::shared_ptr<StagingMemory::Charge> charge;
  if (taken.ok()) charge = std::make_shared<StagingMemory::Charge>(*std::move(taken));
  std::vector<UploadTask::Shard> shards;
  for (PreparePut::Part& part : action.parts) {
    Trace(TraceKind::kUpload, part.to.shard, action.session, action.ordinal, part.bytes.size());
    UploadTask::Shard& shard = shards.emplace_back();
    shard.slot = options_.storages->Find(part.to, part.device);
    shard.storage = part.to.held.get();
    if (!refused.ok()) continue;
    auto owner = std::make_shared<const std::string>(std::move(part.bytes));
    shard.bytes = {std::as_bytes(std::span(*owner)), owner, charge};
  }
  auto task = std::make_shared<UploadTask>(environment_, action.ordinal, options_.backend,
                                           std::move(shards));
  if (!refused.ok()) task->Refuse(refused);
  return task;
}

std::shared_ptr<NodeTask> TaskFactory::Make(const PrepareFetch& action) {
  std::vector<FetchTask::Part> parts;
  for (const PrepareFetch::Part& part : action.parts)
    parts.push_back({options_.storages->Find(part.from, part.device), part.shard});
  auto send = [send = options_.send, session = action.session, fetch = action.fetch](
                  uint32_t shard, std::shared_ptr<FetchedShard> bytes,
                  std::function<void(const absl::Status&)> sent) {
    send(session, fetch, shard, std::move(bytes), std::move(sent));
  };
  auto task = std::make_shared<FetchTask>(environment_, action.ordinal, std::move(parts),
                                          options_.memory_for(action.session), std::move(send));
  Trace(TraceKind::kPrepare, 0, action.session, action.ordinal);
  return task;
}

std::shared_ptr<NodeTask> TaskFactory::Make(const FillUpload& action) {
  const std::shared_ptr<HeldShards> storage = action.held.get();
  GANGWAY_CHECK(storage != nullptr && !storage->shards.empty(), "an upload fills freed shards");
  UploadStaging::Shards staged = options_.take_upload(action.session, action.upload);
  std::vector<UploadTask::Shard> shards;
  for (const auto& [index, slot] : storage->shards) {
    // A shard without bytes fails for its size.
    shards.push_back({.slot = slot, .storage = storage, .bytes = staged[index]});
  }
  return std::make_shared<UploadTask>(environment_, action.ordinal, options_.backend,
                                      std::move(shards));
}

}  // namespace gangway::worker
