// Which processes of other workers each worker of an island was told of: members of its programs, and senders of what
// it receives. Each is described once to each worker that needs it, ahead of the first load or release that does, and
// not with every load and every copy, which would cost the square of the workers. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_INTRODUCTIONS_H_
#define GANGWAY_SCHEDULER_CORE_INTRODUCTIONS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Introductions {
 public:
  Introductions(const Fleet& fleet, Outbox& outbox);

  // Each of `workers` is told of those of `others` whose present process it does not know.
  void Introduce(const std::vector<uint32_t>& others, const std::vector<uint32_t>& workers);
  // Likewise, of a worker of another island.
  void IntroduceFar(const wire::Worker& other, const std::vector<uint32_t>& workers);
  // The process of a worker has ended, and with it what it knew. Those that knew it are told: they may wait for it, or
  // keep its memory.
  void NoteDown(uint32_t worker);

 private:
  // A set of workers of the island, by index.
  class Workers {
   public:
    explicit Workers(uint32_t count) : words_((count + kBits - 1) / kBits) {}
    bool Has(uint32_t worker) const { return (words_[worker / kBits] >> worker % kBits & 1) != 0; }
    void Add(uint32_t worker) { words_[worker / kBits] |= uint64_t{1} << worker % kBits; }
    void Remove(uint32_t worker) { words_[worker / kBits] &= ~(uint64_t{1} << worker % kBits); }
    void Clear() { words_.assign(words_.size(), 0); }
    // Those that are here and not in `others`.
    std::vector<uint32_t> Without(const Workers& others) const;

   private:
    static constexpr uint32_t kBits = 64;
    std::vector<uint64_t> words_;
  };
  // A worker of another island.
  struct Far {
    Incarnation incarnation;  // that was told last
    Workers told;
  };

  wire::IslandItem Describe(const std::vector<uint32_t>& others) const;

  const Fleet& fleet_;
  Outbox& outbox_;
  std::vector<Workers> known_;  // to each worker: those of whose present process it was told
  std::map<std::pair<uint32_t, uint32_t>, Far> far_;  // by island and index
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_INTRODUCTIONS_H_
