// Implementation of fetches.h.
#include "gangway/client/fetches.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/transport/bulk/messages.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

constexpr int kShardsMax = 256;  // of an operation that several calls have joined

absl::Status BadShard(uint32_t shard, const absl::Status& why) {
  return absl::InternalError(absl::StrCat("A worker sent shard ", shard,
                                          " of a fetch wrongly: ", std::string(why.message())));
}

void AddShards(ArrayHandle array, std::span<const uint32_t> shards, wire::FetchOp& op) {
  for (uint32_t shard : shards) {
    op.add_arrays(NumberOf(array));
    op.add_shards(shard);
  }
}

}  // namespace

void Fetches::Fetch(ArrayHandle array, std::span<const uint32_t> shards, FetchSink sink) {
  if (shards.empty()) {
    return submitter_.Defer(
        [done = std::move(sink.on_done), why = submitter_.lost()] { done(why); });
  }
  const bool may_join = sink.may_join && shards.size() == 1;
  const Submitter::Sending sending(submitter_, may_join ? Urgency::kBatched : Urgency::kAnswered);
  MutexLock lock(mutex_);
  std::optional<FetchId> id;
  if (may_join) id = Join(handles_.WorkerOf({array, shards[0]}), {array, shards[0]});
  if (!id) {
    id = submitter_.NewId<FetchId>();
    const absl::Status appended = submitter_.Append(1, nullptr, [&](wire::Op& op) {
      op.mutable_fetch()->set_fetch(id->number());
      AddShards(array, shards, *op.mutable_fetch());
    });
    if (!appended.ok())
      return submitter_.Defer([done = std::move(sink.on_done), appended] { done(appended); });
    activity_.Begin();
  }
  Fetching& fetching = fetches_[*id];
  fetching.is_joint = may_join;
  fetching.left += shards.size();
  auto part = std::make_shared<Part>();
  part->first = fetching.part_of.size();
  part->shards.resize(shards.size());
  part->left = shards.size();
  part->sink = std::move(sink);
  for (uint32_t shard : shards) {
    fetching.part_of.push_back(part);
    fetching.worker_of.push_back(handles_.WorkerOf({array, shard}));
    Use(fetching.worker_of.back());
  }
}

void Fetches::Use(const std::optional<WorkerKey>& worker) const {
  if (worker) return use_(*worker);
  for (const WorkerKey& each : handles_.workers()) use_(each);
}

std::optional<FetchId> Fetches::Join(const std::optional<WorkerKey>& worker, ShardOf shard) {
  if (!worker) return std::nullopt;
  std::optional<FetchId> joined;
  submitter_.WithLast([&](wire::Op& last) GANGWAY_NO_ANALYSIS {
    if (!last.has_fetch() || last.fetch().shards_size() >= kShardsMax) return false;
    const auto it = fetches_.find(FetchId(last.fetch().fetch()));
    if (it == fetches_.end() || !it->second.is_joint || it->second.worker_of[0] != worker)
      return false;
    AddShards(shard.array, std::span<const uint32_t>(&shard.shard, 1), *last.mutable_fetch());
    joined = it->first;
    return true;
  });
  return joined;
}

// --- What the workers send ---

void Fetches::OnShard(const wire::Bulk& bulk) {
  const auto [fetch, shard] = std::pair(FetchId(bulk.name().fetch()), bulk.name().shard());
  if (bulk.has_failed()) {
    const absl::Status why = wire::ToStatus(bulk.failed());
    const absl::Status untold = BadShard(shard, absl::InternalError("it failed without a reason"));
    return End(fetch, why.ok() ? untold : why);
  }
  const std::shared_ptr<Part> part = FindPart(fetch, shard);
  if (part == nullptr) return;
  const size_t index = shard - part->first;
  const wire::ShardBytes& bytes = bulk.bytes();
  if (absl::Status taken = part->shards[index].Take(transport::PieceOf(bytes)); !taken.ok())
    return End(fetch, BadShard(shard, taken));
  if (!bytes.data().empty()) part->sink.on_data(index, bytes.offset(), bytes.data());
  if (bytes.last()) CompleteShard(fetch, shard);
}

void Fetches::OnPlace(FetchId fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                      size_t size) {
  const std::shared_ptr<Part> part = FindPart(fetch, shard);
  if (part == nullptr) return;
  const size_t index = shard - part->first;
  if (absl::Status placed = part->shards[index].Place(); !placed.ok())
    return End(fetch, BadShard(shard, placed));
  if (part->sink.on_place) {
    part->sink.on_place(index, std::move(bytes), size);
  } else {
    part->sink.on_data(index, 0, {bytes.get(), size});
  }
  CompleteShard(fetch, shard);
}

// Null if the fetch has ended, or its shard is complete.
std::shared_ptr<Fetches::Part> Fetches::FindPart(FetchId fetch, uint32_t shard) {
  MutexLock lock(mutex_);
  const auto it = fetches_.find(fetch);
  if (it == fetches_.end() || shard >= it->second.part_of.size()) return nullptr;
  return it->second.part_of[shard];
}

void Fetches::CompleteShard(FetchId fetch, uint32_t shard) {
  std::shared_ptr<Part> part;  // its sink's captures end after the lock
  {
    MutexLock lock(mutex_);
    const auto it = fetches_.find(fetch);
    if (it == fetches_.end()) return;
    part = std::move(it->second.part_of[shard]);
    if (--it->second.left == 0) {
      fetches_.erase(it);
      activity_.End();
    }
  }
  if (--part->left == 0) part->sink.on_done(absl::OkStatus());
}

// --- Ends ---

void Fetches::OnWorkerLost(WorkerKey worker, const absl::Status& why) {
  std::vector<FetchId> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, fetching] : fetches_) {
      if (AwaitedOf(fetching).contains(worker)) ended.push_back(id);
    }
  }
  for (FetchId id : ended) End(id, why);
}

std::set<WorkerKey> Fetches::Awaited() const {
  std::set<WorkerKey> awaited;
  MutexLock lock(mutex_);
  for (const auto& [id, fetching] : fetches_) awaited.merge(AwaitedOf(fetching));
  return awaited;
}

// All workers if one of those that send its shards is not known.
std::set<WorkerKey> Fetches::AwaitedOf(const Fetching& fetching) const {
  std::set<WorkerKey> awaited;
  for (size_t i = 0; i < fetching.part_of.size(); ++i) {
    if (fetching.part_of[i] == nullptr) continue;
    if (!fetching.worker_of[i]) return handles_.workers();
    awaited.insert(*fetching.worker_of[i]);
  }
  return awaited;
}

void Fetches::End(FetchId fetch, const absl::Status& why) {
  Fetching fetching;
  {
    MutexLock lock(mutex_);
    auto node = fetches_.extract(fetch);
    if (node.empty()) return;
    fetching = std::move(node.mapped());
    activity_.End();
  }
  EndParts(fetching, why);
}

void Fetches::EndAll(const absl::Status& why) {
  std::map<FetchId, Fetching> ended;
  {
    MutexLock lock(mutex_);
    ended.swap(fetches_);
    activity_.End(ended.size());
  }
  for (const auto& [id, fetching] : ended) EndParts(fetching, why);
}

// Those that are complete have ended.
void Fetches::EndParts(const Fetching& fetching, const absl::Status& why) {
  for (const std::shared_ptr<Part>& part : fetching.part_of) {
    if (part != nullptr && std::exchange(part->left, 0) > 0) part->sink.on_done(why);
  }
}

}  // namespace gangway::client
