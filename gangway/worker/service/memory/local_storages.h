// The parts of storages that are on this worker: makes the slots of new storages, finds, fails and frees them, and
// counts in a ledger what memory they take. It keeps no list of storages: the core's records hold what is made here
// (worker/core/held.h), and name it in each action.
//
// Threading: of the event loop; the ledger and the slots are thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_MEMORY_LOCAL_STORAGES_H_
#define GANGWAY_WORKER_SERVICE_MEMORY_LOCAL_STORAGES_H_

#include <memory>
#include <string>
#include <vector>

#include "gangway/store/ledger.h"
#include "gangway/store/slot.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/identity.h"
#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/memory/held_shards.h"

namespace gangway::worker {

class LocalStorages {
 public:
  using Slots = std::vector<std::shared_ptr<store::Slot>>;

  // `on_broken`: as of the ledger, on any thread.
  LocalStorages(const Identity& identity, store::Ledger::OnBroken on_broken);

  void Create(CreateStorage& action) const;

  // Never null: a shard that is not here gives a failed slot.
  std::shared_ptr<store::Slot> Find(const ShardKey& key, int device) const;
  Slots FindAll(const std::vector<ShardKey>& keys, int device) const;

  // All local shards of a storage together. `environment`: of the devices that hold them.
  static void Poison(const PoisonStorage& action, const TaskEnvironment& environment);
  // Frees the memory now, not when the runtime drops the last callback that holds a slot.
  static void Drop(const DropStorage& action);
  static void Drop(const DropShards& action);

  const store::Ledger& ledger() const { return *ledger_; }

 private:
  const std::string worker_;
  const std::shared_ptr<store::Ledger> ledger_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_MEMORY_LOCAL_STORAGES_H_
