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
  Attempt* attempt = it->second.attempt.get();
  if (attempt == nullptr || !attempt->welcomed || !attempt->segments.IsConnected()) return;
  if (!AskForPlace(it->second, wish, wish.bytes)) return;
  attempt->reserved[{wish.upload, wish.shard}] = {.bytes = wish.bytes, .placed = std::move(placed)};
}

// Gives `pushing` the place that Reserve requested. True: the worker has not answered yet.
bool DataLinks::TakeReservation(WorkerLink& to, Pushing& pushing) {
  if (to.attempt == nullptr) return false;
  auto reserved = to.attempt->reserved.extract({pushing.push.upload, pushing.push.shard});
  if (reserved.empty()) return false;
  pushing.shard.WriteInto(std::move(reserved.mapped().target));
  return pushing.shard.target() == nullptr;
}

void DataLinks::OnPlace(WorkerKey key, Attempt& attempt, const wire::ShardRequest& answer) {
  WorkerLink& to = workers_[key];
  for (uint64_t segment : answer.gone()) attempt.segments.Forget(segment);
  if (OnReserved(attempt, {answer.ordinal(), answer.shard()}, answer)) return;
  auto pushing = std::find_if(to.placing.begin(), to.placing.end(), [&answer](const Pushing& each) {
    return each.push.upload == answer.ordinal() && each.push.shard == answer.shard();
  });
  if (pushing == to.placing.end()) return;
  if (answer.has_into() && answer.into().size() == pushing->push.data.size()) {
    pushing->shard.WriteInto(attempt.segments.Find(answer.into()));
  }
  pushing->unplaceable = pushing->shard.target() == nullptr;
  Begin(to, std::move(*pushing));
  to.placing.erase(pushing);
  SchedulePump(key);
}

// False: there is no such reservation, or its push has taken it.
bool DataLinks::OnReserved(Attempt& attempt, ShardKey shard, const wire::ShardRequest& answer) {
  auto entry = attempt.reserved.find(shard);
  if (entry == attempt.reserved.end()) return false;
  Reservation& reserved = entry->second;
  if (answer.has_into() && answer.into().size() == reserved.bytes) {
    reserved.target = attempt.segments.Find(answer.into());
  }
  if (reserved.target == nullptr) {
    attempt.reserved.erase(entry);
  } else if (reserved.placed) {
    std::exchange(reserved.placed, nullptr)(
        std::shared_ptr<char>(reserved.target, reinterpret_cast<char*>(reserved.target.get())));
  }
  return true;
}

// The shard is read in place. The worker keeps the place until its last reader is reported gone or
// the stream ends; the mapping outlives the stream.
void DataLinks::OnFetched(WorkerKey key, const std::shared_ptr<Attempt>& attempt,
                          const wire::DataChunk& chunk) {
  const wire::SharedBlock& place = chunk.place();
  auto mapped = attempt->segments.Find(place);
  wire::ShardRequest word;
  word.set_fetch(chunk.fetch());
  word.set_shard(chunk.shard());
  if (mapped == nullptr) return Say(key, attempt, std::move(word));  // requests the bytes instead
  word.set_received(true);
  auto give_back = [this, returns = returns_, key, weak = std::weak_ptr<Attempt>(attempt), word,
                    mapped, forks = ForkGeneration()](const char*) {
    if (ForkGeneration() != forks) return;  // a child's copy of the parent's reference
    MutexLock lock(returns->mutex);
    if (returns->loop == nullptr) return;
    returns->loop->Post([this, key, weak, word] {
      if (auto still = weak.lock()) Say(key, still, word);
    });
  };
  const char* bytes = reinterpret_cast<const char*>(mapped.get());
  options_.on_place(chunk.fetch(), chunk.shard(),
                    std::shared_ptr<const char>(bytes, std::move(give_back)), place.size());
}

bool DataLinks::AskForPlace(WorkerLink& to, const Push& push, size_t bytes) {
  wire::Frame frame;
  wire::ShardRequest& wish = *frame.mutable_shard_request();
  wish.set_ordinal(push.upload);
  wish.set_shard(push.shard);
  wish.mutable_into()->set_size(bytes);
  return to.attempt->sender->Send(std::move(frame)).ok();
}

}  // namespace gangway::client
