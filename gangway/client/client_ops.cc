// The verbs of a client: each appends one operation to the pending batch.
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/client_impl.h"
#include "gangway/client/convert.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

constexpr size_t kDropHandlesMax = 4096;  // of one operation
constexpr int kFetchShardsMax = 256;      // of an operation that several calls have joined

template <typename From, typename To>
void Append(std::span<const From> from, To* to) {
  to->Add(from.begin(), from.end());
}

// A CompileOptionsProto that asks for as many replicas as there are devices.
std::string ReplicasOn(size_t devices) {
  constexpr int kExecutableBuildOptions = 3, kNumReplicas = 4;
  google::protobuf::UnknownFieldSet options, build;
  build.AddVarint(kNumReplicas, devices);
  build.SerializeToString(options.AddLengthDelimited(kExecutableBuildOptions));
  std::string bytes;
  options.SerializeToString(&bytes);
  return bytes;
}

}  // namespace

ExecutableHandle ClientImpl::Compile(std::string program, std::string format, std::string options,
                                     std::vector<uint32_t> devices, CompileCallback done) {
  if (IsOrphan()) [[unlikely]]
    return done(Orphaned()), 0;
  Sending sending(this, Urgency::kAtOnce);
  MutexLock lock(mutex_);
  const ExecutableHandle handle = next_id_++;
  if (!lost_.ok()) {
    Defer([done = std::move(done), why = lost_] { done(why); });
    return handle;
  }
  if (program.size() > transport::kLargeFieldsBytesMax) {
    Defer([done = std::move(done), bytes = program.size()] {
      done(wire::ToStatus(wire::MakeFailure(
          absl::StatusCode::kResourceExhausted,
          absl::StrCat("a program of ", bytes, " bytes is over the limit of ",
                       transport::kLargeFieldsBytesMax),
          "Pass large constants as arguments: arrays that a function captures become part of "
          "its program.")));
    });
    return handle;
  }
  if (options.empty()) options = ReplicasOn(devices.size());
  wire::CompileOp* op = NewOp(0)->mutable_compile();
  op->set_executable(handle);
  op->set_program(std::move(program));
  op->set_format(std::move(format));
  op->set_options(std::move(options));
  op->mutable_devices()->Add(devices.begin(), devices.end());
  executables_[handle] = std::make_shared<const std::vector<uint32_t>>(std::move(devices));
  pending_.compiles[handle] = std::move(done);
  WatchLinks();
  return handle;
}

void ClientImpl::DropExecutables(std::span<const ExecutableHandle> executables) {
  if (IsOrphan()) [[unlikely]]
    return;
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  Append(executables, NewOp(0)->mutable_drop_executables()->mutable_handles());
  for (ExecutableHandle handle : executables) executables_.erase(handle);
}

uint64_t ClientImpl::Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) {
  if (IsOrphan()) [[unlikely]]
    return ended ? (ended(Orphaned()), 0) : 0;
  Sending sending(this);
  MutexLock lock(mutex_);
  const uint64_t id = next_id_++;
  if (!lost_.ok()) {
    DeferEnd(std::move(ended));
    return id;
  }
  wire::UploadOp* op = NewOp(1, std::move(ended))->mutable_upload();
  op->set_array(array);
  op->set_upload(id);
  ToWire(spec, op->mutable_spec());
  auto devices = std::make_shared<const std::vector<uint32_t>>(spec.devices);
  auto destinations = DestinationsOf(*devices);
  for (const auto& [worker, to] : destinations) {
    wire::Destination* destination = op->add_destinations();
    destination->set_island(worker.first);
    destination->set_index(worker.second);
    destination->set_incarnation(to.incarnation.number());
    destination->set_next(to.next);
  }
  uploads_[id] = {.devices = devices,
                  .destinations = std::move(destinations),
                  .shard_bytes = spec.shard_bytes,
                  .pushed = std::vector<bool>(spec.devices.size()),
                  .left = spec.devices.size()};
  placements_[array] = std::move(devices);
  return id;
}

std::map<WorkerKey, Destination> ClientImpl::DestinationsOf(
    const std::vector<uint32_t>& devices) const {
  std::map<WorkerKey, Destination> destinations;
  for (uint32_t device : devices) {
    auto worker = worker_of_.find(device);
    if (worker == worker_of_.end()) continue;
    auto known = workers_.find(worker->second);
    if (known != workers_.end()) destinations.insert(*known);
  }
  return destinations;
}

ClientImpl::OutgoingPush ClientImpl::NewPush(uint64_t upload, const Uploading& uploading,
                                             uint32_t shard) const {
  OutgoingPush outgoing{.device = (*uploading.devices)[shard]};
  outgoing.push.upload = upload;
  outgoing.push.shard = shard;
  auto to = uploading.destinations.find(worker_of_.at(outgoing.device));
  if (to != uploading.destinations.end()) outgoing.push.to = to->second;
  return outgoing;
}

void ClientImpl::Push(uint64_t upload, uint32_t shard, std::string_view data,
                      std::function<void()> released) {
  if (IsOrphan()) [[unlikely]]
    return released ? released() : void();
  bool in_burst = false;
  std::optional<OutgoingPush> outgoing = TakePush(upload, shard, data, in_burst);
  if (outgoing && !in_burst && data.size() < DataLinks::kPlacedBytesMin &&
      data_links_->PushNow(worker_of_.at(outgoing->device), outgoing->push))
    outgoing.reset();
  if (outgoing) {
    MutexLock lock(mutex_);
    if (lost_.ok()) {
      outgoing->push.released = std::move(released);
      pushes_.push_back(*std::move(outgoing));
      return in_burst ? FlushSoon() : Wake();
    }
  }
  if (released) released();
}

// Null: the bytes are not needed.
std::optional<ClientImpl::OutgoingPush> ClientImpl::TakePush(uint64_t upload, uint32_t shard,
                                                             std::string_view data,
                                                             bool& in_burst) {
  MutexLock lock(mutex_);
  in_burst = flush_soon_ && data.size() < DataLinks::kPlacedBytesMin;
  auto it = uploads_.find(upload);
  if (it == uploads_.end()) return std::nullopt;  // failed, abandoned, complete or lost
  Uploading& uploading = it->second;
  std::string problem;
  if (shard >= uploading.pushed.size()) {
    problem = absl::StrCat("shard ", shard, " was pushed to an array of ", uploading.pushed.size(),
                           " shards");
  } else if (uploading.pushed[shard]) {
    problem = absl::StrCat("shard ", shard, " was pushed twice");
  } else if (data.size() != uploading.shard_bytes) {
    problem = absl::StrCat("shard ", shard, " was pushed with ", data.size(),
                           " bytes, not the declared ", uploading.shard_bytes);
  } else if (!worker_of_.contains((*uploading.devices)[shard])) {
    problem = absl::StrCat("shard ", shard, " is for device ", (*uploading.devices)[shard],
                           ", which the cluster does not have");
  }
  if (!problem.empty()) {
    Abandon(upload, absl::InvalidArgumentError(problem));
    return std::nullopt;
  }
  WatchLinks();
  uploading.pushed[shard] = true;
  OutgoingPush outgoing = NewPush(upload, uploading, shard);
  outgoing.push.data = data;
  if (--uploading.left == 0) uploads_.erase(it);
  return outgoing;
}

void ClientImpl::Reserve(uint64_t upload, uint32_t shard,
                         std::function<void(std::shared_ptr<char> place)> placed) {
  if (IsOrphan()) [[unlikely]]
    return;
  MutexLock lock(mutex_);
  auto it = uploads_.find(upload);
  if (it == uploads_.end()) return;
  const Uploading& uploading = it->second;
  if (shard >= uploading.pushed.size() || uploading.pushed[shard] ||
      !worker_of_.contains((*uploading.devices)[shard]))
    return;
  OutgoingPush outgoing = NewPush(upload, uploading, shard);
  outgoing.push.bytes = uploading.shard_bytes;
  outgoing.placed = std::move(placed);
  pushes_.push_back(std::move(outgoing));
  Wake();
}

void ClientImpl::AbandonUpload(uint64_t upload, Status why) {
  if (IsOrphan()) [[unlikely]]
    return;
  MutexLock lock(mutex_);
  auto it = uploads_.find(upload);
  if (it == uploads_.end()) return;
  if (why.ok()) why = absl::CancelledError("the upload was abandoned");
  Abandon(upload, why);
}

void ClientImpl::Abandon(uint64_t upload, const absl::Status& why) {
  uploads_.erase(upload);
  wire::AbandonOp* op = NewOp(0)->mutable_abandon();
  op->set_upload(upload);
  *op->mutable_failure() = wire::ToFailure(why);
  // The workers are told once the controller has failed the upload: so its array has this error, not theirs.
  loop_.Post([this, upload] { WithdrawUpload(upload); });
  Wake();
}

void ClientImpl::Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                      std::span<const ArrayHandle> results, CallOptions options) {
  if (IsOrphan()) [[unlikely]]
    return options.ended ? options.ended(Orphaned()) : void();
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return DeferEnd(std::move(options.ended));
  wire::CallOp* op = NewOp(1, std::move(options.ended))->mutable_call();
  op->set_executable(executable);
  Append(arguments, op->mutable_arguments());
  Append(results, op->mutable_results());
  Append(options.keep, op->mutable_keep());
  op->set_launch_id(options.launch_id);
  op->set_callback_depth(HostCallbacks::Depth());
  for (const GatheredArgument& gathered : options.gathered) {
    wire::GatheredArgument* list = op->add_gathered();
    list->set_argument(gathered.index);
    for (const ShardOf& shard : gathered.shards) {
      list->add_arrays(shard.array);
      list->add_shards(shard.shard);
    }
  }
  auto it = executables_.find(executable);
  if (it == executables_.end()) return;
  for (ArrayHandle result : results) placements_[result] = it->second;
}

// What is submitted to a lost session ends with its loss.
void ClientImpl::DeferEnd(StatusCallback ended) {
  if (ended) Defer([ended = std::move(ended), why = lost_] { ended(why); });
}

void ClientImpl::Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                      std::span<const uint32_t> devices, const std::string& memory_kind,
                      StatusCallback ended) {
  if (IsOrphan()) [[unlikely]]
    return ended ? ended(Orphaned()) : void();
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return DeferEnd(std::move(ended));
  wire::CopyOp* op =
      NewOp(std::min(sources.size(), results.size()), std::move(ended))->mutable_copy();
  Append(sources, op->mutable_sources());
  Append(results, op->mutable_results());
  Append(devices, op->mutable_devices());
  op->set_memory_kind(memory_kind);
  auto placement = std::make_shared<const std::vector<uint32_t>>(devices.begin(), devices.end());
  for (ArrayHandle result : results) placements_[result] = placement;
}

void ClientImpl::Regroup(std::vector<Regrouped> results) {
  if (IsOrphan()) [[unlikely]]
    return;
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  wire::RegroupOp* op = NewOp(0)->mutable_regroup();
  for (const Regrouped& result : results) {
    wire::RegroupOp::Result* to = op->add_results();
    to->set_array(result.array);
    to->set_replica_of(result.replica_of);
    auto placement = std::make_shared<std::vector<uint32_t>>();
    for (const ShardOf& shard : result.shards) {
      wire::RegroupOp::Shard* of = to->add_shards();
      of->set_array(shard.array);
      of->set_shard(shard.shard);
      auto it = placements_.find(shard.array);
      if (it != placements_.end() && shard.shard < it->second->size()) {
        placement->push_back((*it->second)[shard.shard]);
      }
    }
    // The controller chooses the replica: a fetch of it may come from any worker.
    if (placement->size() == result.shards.size() && result.replica_of == 0)
      placements_[result.array] = std::move(placement);
  }
}

void ClientImpl::Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) {
  if (IsOrphan()) [[unlikely]]
    return sink.on_done(Orphaned());
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok() || shards.empty()) {
    Defer([done = std::move(sink.on_done), why = lost_] { done(why); });
    return;
  }
  const bool may_join = sink.may_join && shards.size() == 1;
  wire::FetchOp* op = JoinableFetch(WorkerOf(array, shards[0]), may_join);
  Fetching& fetching = pending_.fetches[op->fetch()];
  fetching.is_joint = may_join;
  fetching.left += shards.size();
  auto part = std::make_shared<FetchPart>();
  part->first = fetching.part_of.size();
  part->shards.resize(shards.size());
  part->left = shards.size();
  part->sink = std::move(sink);
  for (uint32_t shard : shards) {
    op->add_arrays(array);
    op->add_shards(shard);
    fetching.part_of.push_back(part);
    fetching.worker_of.push_back(WorkerOf(array, shard));
  }
  WatchLinks();
}

wire::FetchOp* ClientImpl::JoinableFetch(const std::optional<WorkerKey>& worker, bool may_join) {
  wire::Op* const last = LastOp();
  if (may_join && worker && last != nullptr && last->has_fetch() &&
      last->fetch().shards_size() < kFetchShardsMax) {
    auto it = pending_.fetches.find(last->fetch().fetch());
    if (it != pending_.fetches.end() && it->second.is_joint && it->second.worker_of[0] == worker)
      return last->mutable_fetch();
  }
  wire::FetchOp* op = NewOp(1)->mutable_fetch();
  op->set_fetch(next_id_++);
  return op;
}

std::optional<WorkerKey> ClientImpl::WorkerOf(ArrayHandle array, uint32_t shard) const {
  auto devices = placements_.find(array);
  if (devices == placements_.end() || shard >= devices->second->size()) return std::nullopt;
  auto worker = worker_of_.find((*devices->second)[shard]);
  if (worker == worker_of_.end()) return std::nullopt;
  return worker->second;
}

void ClientImpl::Await(std::span<const ArrayHandle> arrays, StatusCallback done) {
  if (IsOrphan()) [[unlikely]]
    return done(Orphaned());
  Sending sending(this, Urgency::kAtOnce);
  MutexLock lock(mutex_);
  if (!lost_.ok()) {
    Defer([done = std::move(done), why = lost_] { done(why); });
    return;
  }
  const uint64_t id = next_id_++;
  wire::AwaitOp* op = NewOp(0)->mutable_await();
  op->set_await(id);
  Append(arrays, op->mutable_arrays());
  pending_.awaits[id] = std::move(done);
  WatchLinks();
}

void ClientImpl::Drop(std::span<const ArrayHandle> arrays) {
  if (IsOrphan()) [[unlikely]]
    return;
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  SendSoon();
  AppendDrop(arrays);
}

// Drops in a row are one operation.
void ClientImpl::AppendDrop(std::span<const ArrayHandle> arrays) {
  wire::Op* const last = LastOp();
  const bool joins = last != nullptr && last->has_drop() &&
                     last->drop().handles_size() + arrays.size() <= kDropHandlesMax;
  Append(arrays, (joins ? last : NewOp(0))->mutable_drop()->mutable_handles());
  for (ArrayHandle array : arrays) {
    placements_.erase(array);
    dropping_.erase(array);
  }
}

// Most arrays lose all their shards at once: then the one drop of their handle says it all.
void ClientImpl::DropShard(ShardOf shard, uint32_t shard_count) {
  if (IsOrphan()) [[unlikely]]
    return;
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  SendSoon();
  if (shard_count == 1) return AppendDrop(std::span<const ArrayHandle>(&shard.array, 1));
  auto [entry, is_new] = dropping_.try_emplace(shard.array);
  Dropping& dropping = entry->second;
  if (is_new) dropping.left = shard_count;
  if (--dropping.left == 0) {
    dropping_.erase(entry);
    return AppendDrop(std::span<const ArrayHandle>(&shard.array, 1));
  }
  if (dropping.unsent.empty()) shard_drops_.push_back(shard.array);
  dropping.unsent.push_back(shard.shard);
}

void ClientImpl::AppendShardDrops() {
  wire::DropShardsOp* op = nullptr;
  for (ArrayHandle array : std::exchange(shard_drops_, {})) {
    auto dropping = dropping_.find(array);
    if (dropping == dropping_.end()) continue;
    if (op == nullptr) op = NewOp(0)->mutable_drop_shards();
    wire::DropShardsOp::Shards* shards = op->add_arrays();
    shards->set_array(array);
    Append(std::span<const uint32_t>(dropping->second.unsent), shards->mutable_shards());
    dropping->second.unsent.clear();
  }
}

void ClientImpl::Delete(std::span<const ArrayHandle> arrays) {
  if (IsOrphan()) [[unlikely]]
    return;
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  Append(arrays, NewOp(0)->mutable_delete_()->mutable_handles());
  for (ArrayHandle array : arrays) placements_.erase(array);
}

void ClientImpl::Poison(std::span<const ArrayHandle> arrays, const Status& why) {
  if (IsOrphan()) [[unlikely]]
    return;
  Sending sending(this);
  MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  wire::PoisonOp* op = NewOp(0)->mutable_poison();
  Append(arrays, op->mutable_arrays());
  *op->mutable_failure() = wire::ToFailure(why);
}

}  // namespace gangway::client
