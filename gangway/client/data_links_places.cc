// The shards that a client writes into its workers' memory, and those that it reads there (data_links.h).
#include <algorithm>
#include <utility>

#include "gangway/base/fork.h"
#include "gangway/client/data_links.h"

namespace gangway::client {

void DataLinks::Reserve(WorkerKey key, const Push& wish,
                        std::function<void(std::shared_ptr<char> place)> placed) {
  auto it = workers_.find(key);
  if (closed_ || it == workers_.end() || wish.to.next || !IsFor(it->second, wish.to)) return;
  UseOnLoop(key);
  const ConnectionPtr connection = it->second.open;
  if (connection == nullptr || !connection->segments.IsConnected()) return;
  if (!AskForPlace(it->second, wish, wish.bytes)) return;
  connection->reserved[{wish.upload, wish.shard}] = {.bytes = wish.bytes,
                                                     .placed = std::move(placed)};
}

// Gives `pushing` the place that Reserve requested. True: the worker has not answered yet.
bool DataLinks::TakeReservation(WorkerLink& to, Pushing& pushing) {
  if (to.open == nullptr) return false;
  auto reserved = to.open->reserved.extract({pushing.push.upload, pushing.push.shard});
  if (reserved.empty()) return false;
  pushing.shard.WriteInto(std::move(reserved.mapped().target));
  return pushing.shard.target() == nullptr;
}

void DataLinks::OnPlace(WorkerKey key, Connection& connection, const wire::ShardName& name,
                        const wire::PlaceAnswer& answer) {
  WorkerLink& to = workers_[key];
  const UploadId upload{name.upload()};
  if (OnReserved(connection, {upload, name.shard()}, answer)) return;
  auto pushing = std::find_if(to.placing.begin(), to.placing.end(), [&](const Pushing& each) {
    return each.push.upload == upload && each.push.shard == name.shard();
  });
  if (pushing == to.placing.end()) return;
  if (answer.has_place() && answer.place().size() == pushing->push.data.size()) {
    pushing->shard.WriteInto(connection.segments.Find(answer.place()));
  }
  pushing->unplaceable = pushing->shard.target() == nullptr;
  Begin(to, std::move(*pushing));
  to.placing.erase(pushing);
  SchedulePump(key);
}

// False: there is no such reservation, or its push has taken it.
bool DataLinks::OnReserved(Connection& connection, ShardKey shard,
                           const wire::PlaceAnswer& answer) {
  auto entry = connection.reserved.find(shard);
  if (entry == connection.reserved.end()) return false;
  Reservation& reserved = entry->second;
  if (answer.has_place() && answer.place().size() == reserved.bytes) {
    reserved.target = connection.segments.Find(answer.place());
  }
  if (reserved.target == nullptr) {
    connection.reserved.erase(entry);
  } else if (reserved.placed) {
    std::exchange(reserved.placed, nullptr)(
        std::shared_ptr<char>(reserved.target, reinterpret_cast<char*>(reserved.target.get())));
  }
  return true;
}

// The shard is read in place. The worker keeps the place until its last reader is reported gone or
// the stream ends; the mapping outlives the stream.
void DataLinks::OnFetched(WorkerKey key, const ConnectionPtr& connection, const wire::Bulk& bulk) {
  const wire::SharedBlock& place = bulk.lent();
  auto mapped = connection->segments.Find(place);
  wire::Bulk word;
  *word.mutable_name() = bulk.name();
  if (mapped == nullptr) {
    word.mutable_resend();
    return Say(key, connection, std::move(word));
  }
  word.mutable_received();
  auto give_back = [this, returns = returns_, key, weak = std::weak_ptr<Connection>(connection),
                    word, mapped, forks = ForkGeneration()](const char*) {
    if (ForkGeneration() != forks) return;  // a child's copy of the parent's reference
    MutexLock lock(returns->mutex);
    if (returns->loop == nullptr) return;
    returns->loop->Post([this, key, weak, word] {
      if (auto still = weak.lock()) Say(key, still, word);
    });
  };
  const char* bytes = reinterpret_cast<const char*>(mapped.get());
  options_.on_place(FetchId(bulk.name().fetch()), bulk.name().shard(),
                    std::shared_ptr<const char>(bytes, std::move(give_back)), place.size());
}

bool DataLinks::AskForPlace(WorkerLink& to, const Push& push, size_t bytes) {
  wire::Frame frame;
  wire::Bulk& wish = *frame.mutable_bulk();
  wish.mutable_name()->set_session(options_.session.number());
  wish.mutable_name()->set_upload(NumberOf(push.upload));
  wish.mutable_name()->set_shard(push.shard);
  wish.mutable_place_request()->set_size(bytes);
  return to.open->sender->Send(std::move(frame)).ok();
}

}  // namespace gangway::client
