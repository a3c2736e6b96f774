// The compiles that have no answer yet, by the numbers of their requests: what their programs take (TM-2), in which
// order the sessions take turns, and which programs are still to be looked up in the cache. Which compile may run in
// which process is decided elsewhere (compile_queue.h).
//
// Pure; not thread-safe. Stands on CompileLimits alone. An iterator is valid until its compile is removed.
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_BACKLOG_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/compile_limits.h"
#include "gangway/controller/core/pending_compile.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class CompileBacklog {
 public:
  enum class State { kQueued, kLookup, kMissed, kRunning };
  struct Entry {
    PendingCompile compile;
    State state = State::kQueued;
    uint32_t compiler = 0;  // of a lookup, or where it runs
    bool unwanted = false;  // only while it runs
    uint64_t bytes() const { return compile.request.program().size(); }
    PendingCompile Answered() const;  // without its program
  };
  using Entries = std::map<uint64_t, Entry>;  // by request number, oldest first
  using Iterator = Entries::iterator;
  using Waiting = std::map<SessionId, std::deque<uint64_t>>;

  // `limits` outlive this.
  explicit CompileBacklog(const CompileLimits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: it does not fit beside the others, with the sizes.
  std::optional<wire::Failure> CheckRoom(const PendingCompile& compile) const;
  // Its request has a number of its own, larger than all before.
  void Add(PendingCompile compile);
  void Remove(Iterator entry);
  // It stands in line again, before the others of its session, and is not looked up once more.
  void Requeue(Iterator entry);

  Iterator Find(uint64_t request) { return entries_.find(request); }
  const Entry& At(uint64_t request) const { return entries_.at(request); }
  Entry& At(uint64_t request) { return entries_.at(request); }
  const Entries& all() const { return entries_; }
  Entries& all() { return entries_; }
  size_t size() const { return entries_.size(); }
  uint64_t program_bytes() const { return program_bytes_; }
  std::vector<uint64_t> OfSession(SessionId session) const;
  bool IsLarge(const Entry& entry) const { return entry.bytes() >= limits_.large_bytes_min; }

  // Of each session, in its order: those that do not run. No list is empty.
  const Waiting& waiting() const { return waiting_; }
  // Whether one waits for anything but the answer to its lookup, which is near.
  bool AnyWaits() const;
  // Takes the compile that runs next out of the line: of those that `may_run` and have the lowest rank, the first of
  // the session after the one whose turn was last. nullopt: none may.
  template <typename RankOf, typename MayRun>
  std::optional<uint64_t> TakeTurn(RankOf rank_of, MayRun may_run);
  void BeginRun(Iterator entry, uint32_t compiler);

  // The next program to be looked up, which `compiler` is asked for; all().end(): there is none, or those whose answers
  // are awaited take all the bytes that they may.
  Iterator BeginLookup(uint32_t compiler);
  // It is not in the cache.
  void EndLookup(Iterator entry);

 private:
  struct Share {
    uint32_t compiles = 0;
    uint64_t program_bytes = 0;
  };

  void TakeFromLine(SessionId session, uint64_t request);

  const CompileLimits& limits_;
  Entries entries_;
  Waiting waiting_;
  std::map<SessionId, Share> shares_;  // of the sessions in entries_
  uint64_t program_bytes_ = 0;         // of all of them
  std::deque<uint64_t> to_look_up_;    // in the order of arrival; some may be gone
  uint64_t looking_up_bytes_ = 0;
  SessionId last_turn_;
};

template <typename RankOf, typename MayRun>
std::optional<uint64_t> CompileBacklog::TakeTurn(RankOf rank_of, MayRun may_run) {
  std::optional<uint64_t> best;
  int best_rank = 0;
  auto next = waiting_.upper_bound(last_turn_);
  for (size_t i = 0; i < waiting_.size(); ++i, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    for (const uint64_t request : next->second) {
      const Entry& entry = entries_.at(request);
      if (entry.state == State::kLookup) continue;  // its answer is near
      const int rank = rank_of(entry);
      if ((best && rank >= best_rank) || !may_run(entry)) continue;
      best = request;
      best_rank = rank;
    }
  }
  if (!best) return std::nullopt;
  last_turn_ = entries_.at(*best).compile.session;
  TakeFromLine(last_turn_, *best);
  return best;
}

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_BACKLOG_H_
