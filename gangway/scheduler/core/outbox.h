// What one step of an island's scheduler tells others, in order. An item for many workers is there once. Items for a
// worker that is down are dropped: it gets all that it needs when its next process registers. Consecutive releases for
// the same workers share one item, which is the hot path of a busy island, and so do consecutive frees: a node that
// ends frees all that it alone used. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_OUTBOX_H_
#define GANGWAY_SCHEDULER_CORE_OUTBOX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Outbox {
 public:
  explicit Outbox(const Fleet& fleet) : fleet_(fleet), latest_(fleet.worker_count()) {}

  void Send(const std::vector<uint32_t>& workers, wire::IslandItem item);
  void Send(uint32_t worker, wire::IslandItem item);
  void SendToAll(wire::IslandItem item);
  void SendRelease(const std::vector<uint32_t>& workers, Ordinal ordinal, OrderPosition position);
  void SendFree(const std::vector<uint32_t>& workers, StorageId storage);
  void SendFree(const std::vector<uint32_t>& workers, const ShardRange& shards);

  void Report(wire::Report report) { actions_.to_controller.push_back(std::move(report)); }
  void ReportReleased(Ordinal ordinal);

  // A line for the log.
  void Notice(std::string text) { actions_.notices.push_back(std::move(text)); }
  void NoteUnloaded(ExecutableId executable) { actions_.unloaded.push_back(executable); }
  void NoteReplaced(WorkerDown down) { actions_.replaced.push_back(std::move(down)); }

  // Appends to `actions` what the step has said. The next step begins.
  void TakeInto(Actions& actions);

 private:
  static constexpr int kFreesMax = 4096;  // in one item, which no link cuts into frames

  // Null: none of the workers is up.
  wire::IslandItem* Emit(std::vector<uint32_t> workers, wire::IslandItem item);
  std::vector<uint32_t> Up(const std::vector<uint32_t>& workers) const;
  // The item which in this step is the latest one for each of these workers that is up, and for no others; null: there
  // is none.
  wire::IslandItem* LatestFor(const std::vector<uint32_t>& workers);
  // Likewise, if more frees may join it; else a new one. Null: none of them is up.
  wire::Free* FreesFor(const std::vector<uint32_t>& workers, bool is_storage);

  const Fleet& fleet_;
  Actions actions_;
  // The latest item for a worker in the actions of a step.
  struct Latest {
    uint64_t step = 0;
    size_t index = 0;
  };
  std::vector<Latest> latest_;  // by worker
  uint64_t step_ = 1;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_OUTBOX_H_
