// Handles what the cluster sends: replies and events of the session, chunks of fetches. Runs on the
// client's loop.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/client_impl.h"
#include "gangway/client/convert.h"
#include "gangway/wire/failure.h"

namespace gangway::client {

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

void ClientImpl::OnChunk(const wire::DataChunk& chunk) {
  if (chunk.name_case() != wire::DataChunk::kFetch) return;
  std::shared_ptr<Fetching> fetching = FindFetch(chunk.fetch());
  if (fetching == nullptr) return;
  if (chunk.failure().code() != 0) {
    EndFetch(chunk.fetch(), wire::ToStatus(chunk.failure()));
    return;
  }
  auto index = fetching->index.find(chunk.shard());
  if (index == fetching->index.end() || fetching->complete[index->second]) return;
  uint64_t& received = fetching->received[index->second];
  if (chunk.offset() != received) {
    EndFetch(chunk.fetch(), absl::InternalError(absl::StrCat(
                                "shard ", chunk.shard(), " of a fetch has a chunk at offset ",
                                chunk.offset(), " after ", received, " bytes")));
    return;
  }
  received += chunk.data().size();
  if (!chunk.data().empty()) fetching->sink.on_data(index->second, chunk.offset(), chunk.data());
  if (chunk.last()) CompleteShard(chunk.fetch(), *fetching, index->second);
}

void ClientImpl::OnPlace(uint64_t fetch, uint32_t shard, std::shared_ptr<const char> bytes,
                         size_t size) {
  std::shared_ptr<Fetching> fetching = FindFetch(fetch);
  if (fetching == nullptr) return;
  auto index = fetching->index.find(shard);
  if (index == fetching->index.end() || fetching->complete[index->second]) return;
  if (fetching->sink.on_place) {
    fetching->sink.on_place(index->second, std::move(bytes), size);
  } else {
    fetching->sink.on_data(index->second, 0, {bytes.get(), size});
  }
  CompleteShard(fetch, *fetching, index->second);
}

// Null if the fetch has ended.
std::shared_ptr<ClientImpl::Fetching> ClientImpl::FindFetch(uint64_t fetch) {
  MutexLock lock(mutex_);
  auto it = pending_.fetches.find(fetch);
  return it == pending_.fetches.end() ? nullptr : it->second;
}

void ClientImpl::CompleteShard(uint64_t fetch, Fetching& fetching, size_t index) {
  {
    MutexLock lock(mutex_);  // OnWorkerLost reads it
    fetching.complete[index] = true;
    --fetching.left;
  }
  if (fetching.left == 0) EndFetch(fetch, absl::OkStatus());
}

void ClientImpl::OnWorkerLost(WorkerKey worker, const absl::Status& why) {
  std::vector<uint64_t> ended;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, fetching] : pending_.fetches) {
      if (Awaited(*fetching).contains(worker)) ended.push_back(id);
    }
  }
  for (uint64_t id : ended) EndFetch(id, why);
}

std::set<WorkerKey> ClientImpl::Awaited(const Fetching& fetching) const {
  std::set<WorkerKey> awaited;
  for (size_t i = 0; fetching.devices && i < fetching.shards.size(); ++i) {
    const uint32_t shard = fetching.shards[i];
    if (fetching.complete[i] || shard >= fetching.devices->size()) continue;
    auto worker = worker_of_.find((*fetching.devices)[shard]);
    if (worker != worker_of_.end()) awaited.insert(worker->second);
  }
  if (fetching.devices) return awaited;
  for (const auto& [key, destination] : workers_) awaited.insert(key);
  return awaited;
}

void ClientImpl::EndFetch(uint64_t fetch, const absl::Status& why) {
  std::shared_ptr<Fetching> fetching;
  {
    MutexLock lock(mutex_);
    auto node = pending_.fetches.extract(fetch);
    if (node.empty()) return;
    fetching = std::move(node.mapped());
  }
  fetching->sink.on_done(why);
}

}  // namespace gangway::client
