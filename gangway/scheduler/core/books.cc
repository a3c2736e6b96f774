// The books of a session's bytes: who credits more than was charged has found a bug of ours in that session's sums.
// Its books are then counted again from the records that later credits will follow, and the session ends. The others
// go on.
#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::Credit(SessionId session, IslandDevice device, uint64_t bytes) {
  memory_freed_ |= bytes != 0;
  if (ledger_.Credit(session, device, bytes)) return;
  broken_books_.emplace(
      session, absl::StrCat("a release of ", bytes, " bytes on device ", StateOf(device).id,
                            ", of which its books held ", ledger_.HeldBy(session, device)));
}

// What the session's storages and admitted nodes hold.
Ledger::Books Island::CountAgain(SessionId session) const {
  Ledger::Books books(devices_.size(), 0);
  for (const auto& [id, storage] : storages_) {
    if (storage.session != session) continue;
    for (size_t place = 0; place < storage.charged.size(); ++place) {
      if (storage.charged[place]) books[storage.devices[place].number()] += storage.shard_bytes;
    }
  }
  for (const auto& [ordinal, node] : nodes_) {
    if (node.session != session || !node.admitted) continue;
    for (IslandDevice device : node.devices)  // the consumed storages cover what donation saves
      books[device.number()] += node.temp_bytes - node.alias_bytes;
  }
  return books;
}

void Island::MendBooks(Actions& actions) {
  for (const auto& [session, found] : std::exchange(broken_books_, {})) {
    ledger_.SetRight(session, CountAgain(session));
    memory_freed_ = true;
    wire::Report report;
    wire::BrokenBooks& broken = *report.mutable_broken_books();
    broken.set_session(session.number());
    *broken.mutable_failure() =
        wire::MakeFailure(absl::StatusCode::kInternal,
                          absl::StrCat("the scheduler of island ", config_.island,
                                       " found the memory sums of session ", session,
                                       " broken: ", found, "; so it ends that session"),
                          "This is a bug of Gangway: report it with the head's log. Other sessions "
                          "go on; connect again.");
    actions.notices.push_back(broken.failure().message());
    actions.to_controller.push_back(std::move(report));
  }
}

}  // namespace gangway::scheduler
