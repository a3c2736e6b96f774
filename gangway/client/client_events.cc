// Handles what the cluster sends: replies and events of the session, chunks of fetches. Runs on the
// client's loop.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/client_impl.h"
#include "gangway/client/convert.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

absl::Status BadShard(uint32_t shard, const absl::Status& why) {
  return absl::InternalError(absl::StrCat("A worker sent shard ", shard,
                                          " of a fetch wrongly: ", std::string(why.message())));
}

}  // namespace

void ClientImpl::OnEvents(wire::SessionEvents& events) {
  if (!data_links_) return;  // no event may precede the welcome
  for (wire::SessionEvent& event : *events.mutable_events()) {
    switch (event.event_case()) {
      case wire::SessionEvent::kCompiled:
        OnCompiled(*event.mutable_compiled());
        break;
      case wire::SessionEvent::kAwaitDone:
        OnAwaitDone(event.await_done());
        break;
      case wire::SessionEvent::kFetchFailed:
        EndFetch(event.fetch_failed().fetch(), wire::ToStatus(event.fetch_failed().failure()));
        break;
      case wire::SessionEvent::kWorkerState:
        if (!event.worker_state().up()) losses_.fetch_add(1, std::memory_order_relaxed);
        NoteWorker(event.worker_state().worker(), event.worker_state().up(),
                   event.worker_state().failure().message());
        host_callbacks_.TellOfWorkers();
        break;
      case wire::SessionEvent::kAdmitted:
        data_links_->Admit({event.admitted().island(), event.admitted().index()});
        break;
      case wire::SessionEvent::kProgress:
        OnProgress(event.progress());
        break;
      case wire::SessionEvent::kUploadFailed:
        ForgetUpload(event.upload_failed().upload());
        break;
      case wire::SessionEvent::kUsage:
        OnUsage(event.usage());
        break;
      case wire::SessionEvent::kEnded:
        return Lose(wire::ToStatus(event.ended()));
      case wire::SessionEvent::EVENT_NOT_SET:
        break;  // an event of a newer controller
    }
  }
}

void ClientImpl::OnCompiled(wire::Compiled& compiled) {
  CompileCallback done;
  {
    MutexLock lock(mutex_);
    auto node = pending_.compiles.extract(compiled.executable());
    if (node.empty()) return;
    done = std::move(node.mapped());
  }
  if (compiled.failure().code() != 0) {
    done(wire::ToStatus(compiled.failure()));
  } else {
    done(ToExecutableInfo(std::move(*compiled.mutable_info())));
  }
}

void ClientImpl::OnAwaitDone(const wire::AwaitDone& done_event) {
  StatusCallback done;
  {
    MutexLock lock(mutex_);
    auto node = pending_.awaits.extract(done_event.await());
    if (node.empty()) return;
    done = std::move(node.mapped());
  }
  done(wire::ToStatus(done_event.failure()));
}

// Its bytes need not be sent.
void ClientImpl::WithdrawUpload(uint64_t upload) {
  std::vector<std::function<void()>> released;
  {
    MutexLock lock(mutex_);
    uploads_.erase(upload);
    std::erase_if(pushes_, [&](OutgoingPush& outgoing) {
      if (outgoing.push.upload != upload) return false;
      if (outgoing.push.released) released.push_back(std::move(outgoing.push.released));
      return true;
    });
  }
  for (auto& call : released) call();
  data_links_->Withdraw(upload);
}

// The cluster has failed it, so its bytes are of no use.
void ClientImpl::ForgetUpload(uint64_t upload) {
  WithdrawUpload(upload);
  data_links_->TellDropped(upload);
}

void ClientImpl::OnProgress(const wire::Progress& progress) {
  for (const wire::NodesEnded& nodes : progress.nodes()) {
    std::vector<StatusCallback> ended;
    {
      MutexLock lock(mutex_);
      pending_.ends.End(nodes.first(), nodes.count(), ended);
    }
    const absl::Status status = wire::ToStatus(nodes.failure());
    for (StatusCallback& each : ended) each(status);
  }
  if (progress.ended() <= ended_.load(std::memory_order_relaxed)) return;
  ended_.store(progress.ended(), std::memory_order_relaxed);
  TellRoom();
}

void ClientImpl::TellRoom() {
  std::vector<std::function<void()>> room;
  {
    MutexLock lock(mutex_);
    if (pending() >= options_.pending_max) return;
    room.swap(pending_.room);
  }
  for (auto& on_room : room) on_room();
}

void ClientImpl::OnShard(const wire::Bulk& bulk) {
  const auto [fetch, shard] = std::pair(bulk.name().fetch(), bulk.name().shard());
  if (bulk.has_failed()) {
    const absl::Status why = wire::ToStatus(bulk.failed());
    const absl::Status untold = BadShard(shard, absl::InternalError("it failed without a reason"));
    return EndFetch(fetch, why.ok() ? untold : why);
  }
  const std::shared_ptr<FetchPart> part = FindPart(fetch, shard);
  if (part == nullptr) return;
  const size_t index = shard - part->first;
  const wire::ShardBytes& bytes = bulk.bytes();
  if (absl::Status taken = part->shards[index].Take(transport::PieceOf(bytes)); !taken.ok())
    return EndFetch(fetch, BadShard(shard, taken));
  if (!bytes.data().empty()) part->sink.on_data(index, bytes.offset(), bytes.data());
  if (bytes.last()) CompleteShard(fetch, shard);
}

void ClientImpl::OnPlace(uint64_t fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                         size_t size) {
  const std::shared_ptr<FetchPart> part = FindPart(fetch, shard);
  if (part == nullptr) return;
  const size_t index = shard - part->first;
  if (absl::Status placed = part->shards[index].Place(); !placed.ok())
    return EndFetch(fetch, BadShard(shard, placed));
  if (part->sink.on_place) {
    part->sink.on_place(index, std::move(bytes), size);
  } else {
    part->sink.on_data(index, 0, {bytes.get(), size});
  }
  CompleteShard(fetch, shard);
}

// Null if the fetch has ended, or its shard is complete.
std::shared_ptr<ClientImpl::FetchPart> ClientImpl::FindPart(uint64_t fetch, uint32_t shard) {
  MutexLock lock(mutex_);
  auto it = pending_.fetches.find(fetch);
  if (it == pending_.fetches.end() || shard >= it->second.part_of.size()) return nullptr;
  return it->second.part_of[shard];
}

void ClientImpl::CompleteShard(uint64_t fetch, uint32_t shard) {
  std::shared_ptr<FetchPart> part;  // its sink's captures end after the lock
  {
    MutexLock lock(mutex_);
    auto it = pending_.fetches.find(fetch);
    if (it == pending_.fetches.end()) return;
    part = std::move(it->second.part_of[shard]);
    if (--it->second.left == 0) pending_.fetches.erase(it);
  }
  if (--part->left == 0) part->sink.on_done(absl::OkStatus());
}

void ClientImpl::OnWorkerLost(WorkerKey worker, const absl::Status& why) {
  std::vector<uint64_t> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, fetching] : pending_.fetches) {
      if (Awaited(fetching).contains(worker)) ended.push_back(id);
    }
  }
  for (uint64_t id : ended) EndFetch(id, why);
}

std::set<WorkerKey> ClientImpl::Awaited(const Fetching& fetching) const {
  std::set<WorkerKey> awaited;
  bool all = false;
  for (size_t i = 0; i < fetching.part_of.size(); ++i) {
    if (fetching.part_of[i] == nullptr) continue;
    if (fetching.worker_of[i]) {
      awaited.insert(*fetching.worker_of[i]);
    } else {
      all = true;
    }
  }
  if (!all) return awaited;
  for (const auto& [key, destination] : workers_) awaited.insert(key);
  return awaited;
}

void ClientImpl::EndFetch(uint64_t fetch, const absl::Status& why) {
  Fetching fetching;
  {
    MutexLock lock(mutex_);
    auto node = pending_.fetches.extract(fetch);
    if (node.empty()) return;
    fetching = std::move(node.mapped());
  }
  EndParts(fetching, why);
}

// Those that are complete have ended.
void ClientImpl::EndParts(const Fetching& fetching, const absl::Status& why) {
  for (const std::shared_ptr<FetchPart>& part : fetching.part_of) {
    if (part != nullptr && std::exchange(part->left, 0) > 0) part->sink.on_done(why);
  }
}

}  // namespace gangway::client
