// Implementation of awaits.h.
#include "gangway/controller/core/awaits.h"

#include "absl/container/flat_hash_set.h"

namespace gangway::controller {

void Awaits::State::Note(uint32_t index, const wire::FailureRef& what) {
  if (what == nullptr || (failure != nullptr && failure_index <= index)) return;
  failure = what;
  failure_index = index;
}

void Awaits::OnAwait(SessionId session, const wire::AwaitOp& op, const SessionArrays& arrays,
                     Storages& storages) {
  const AwaitId id(op.await());
  const auto await = awaits_.try_emplace({session, id}).first;
  State& state = await->second;
  absl::flat_hash_set<ArrayHandle> seen;
  uint32_t index = 0;
  for (const uint64_t number : op.arrays()) {
    const ArrayHandle handle{number};
    if (op.arrays_size() > 1 && !seen.insert(handle).second) continue;
    state.Note(index++, arrays.CheckUsable(handle));
    const Array* array = arrays.Find(handle);
    if (array == nullptr) continue;
    for (const Run& run : array->runs) {  // a spoiled storage may still be pending
      if (run.count != 0 && storages.Wait(run, {session, id, index})) {
        ++state.unsettled;
        ++index;
      }
    }
  }
  if (state.unsettled == 0) Finish(await);
}

void Awaits::OnSettled(const std::vector<Storages::Settled>& settled) {
  for (const auto& [waiter, failure] : settled) {
    const auto await = awaits_.find({waiter.session, waiter.await});
    if (await == awaits_.end()) continue;
    await->second.Note(waiter.index, failure);
    if (--await->second.unsettled == 0) Finish(await);
  }
}

void Awaits::Finish(std::map<Key, State>::iterator await) {
  wire::SessionEvent event;
  event.mutable_await_done()->set_await(await->first.second.number());
  if (await->second.failure)
    *event.mutable_await_done()->mutable_failure() = *await->second.failure;
  outbox_.ToClient(await->first.first, std::move(event));
  awaits_.erase(await);
}

void Awaits::Close(SessionId session) {
  const auto first = awaits_.lower_bound({session, AwaitId()});
  auto last = first;
  while (last != awaits_.end() && last->first.first == session) ++last;
  awaits_.erase(first, last);
}

}  // namespace gangway::controller
