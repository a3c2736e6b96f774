// The executables of an island: which workers have each of them, and which loads have failed there. What the devices of
// an executable say about workers is worked out once, when it is loaded. The workers of a program with collectives of
// Gangway's own are introduced to one another before it is loaded. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_EXECUTABLES_H_
#define GANGWAY_SCHEDULER_CORE_EXECUTABLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/introductions.h"
#include "gangway/scheduler/core/layouts.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

struct Executable {
  wire::Load load;
  wire::ProgramLabelRef label;
  std::shared_ptr<const std::string> client;  // whose it is, for people
  LayoutRef layout;                           // of its positions

  // Whether its collectives are Gangway's own, so that its workers must know one another.
  bool has_members() const { return load.has_positions() && load.has_collectives(); }
  // Whether its collectives are those of the device runtime.
  bool uses_runtimes_collectives() const { return load.has_collectives() && !has_members(); }
};

class Executables {
 public:
  Executables(const Fleet& fleet, const Layouts& layouts, Introductions& introductions,
              Outbox& outbox);

  // Null: it is not loaded here.
  const Executable* Find(ExecutableId id) const;

  void Load(const wire::Load& load);
  // The worker could not load it. Launches of it fail from then on.
  void NoteFailure(uint32_t worker, wire::Loaded& loaded, Time now);
  // Null: no load of it has failed.
  wire::FailureRef FailureOf(ExecutableId id) const;
  // If a load has failed and may do better now, loads it there once more, ahead of its next use.
  void LoadAgain(ExecutableId id, Time now);

  // It is unloaded by Unload(), once no node that is held back needs it.
  void NoteUnload(const wire::Unload& unload);
  bool must_unload() const { return !unloading_.empty(); }
  void Unload(const std::set<ExecutableId>& needed);

  // A process of the worker has started: it gets what the worker has, and the other workers of its programs are told.
  void LoadAllOn(uint32_t worker);

 private:
  struct LoadFailure {
    wire::FailureRef failure;  // the latest
    std::set<uint32_t> workers;
    Time at;
  };

  void SendLoad(const Executable& executable, const std::vector<uint32_t>& workers);
  void Erase(ExecutableId id);

  const Fleet& fleet_;
  const Layouts& layouts_;
  Introductions& introductions_;
  Outbox& outbox_;
  std::map<ExecutableId, Executable> executables_;
  std::vector<std::set<ExecutableId>> by_worker_;
  // By the number of a layout: how many executables with members are on it. While there are any, the layout's workers
  // that are up know one another.
  absl::flat_hash_map<uint64_t, size_t> introduced_;
  absl::flat_hash_map<ExecutableId, LoadFailure> load_failures_;
  std::set<ExecutableId> unloading_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_EXECUTABLES_H_
