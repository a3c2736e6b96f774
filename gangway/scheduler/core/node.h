// One node of an island: what its message says of it, and how far it has come. Plain data.
#ifndef GANGWAY_SCHEDULER_CORE_NODE_H_
#define GANGWAY_SCHEDULER_CORE_NODE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/layouts.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

// Consecutive shards of a storage, of which some may be on other islands.
struct ShardRange {
  StorageId storage;
  uint32_t first = 0, count = 0;
};

// What only a launch has.
struct LaunchPart {
  ExecutableId executable;
  std::shared_ptr<const std::string> client;  // of its session, for people; may be null
  std::vector<StorageId> consumes;            // sorted: those of which it consumes shards
  std::vector<ShardRange> consumed;           // these shards
  bool alone = false;                         // no other launch may run beside it
  bool calls_host = false;
  bool spans = false;      // it has devices on other islands, too
  bool said_late = false;  // its late members were logged
};

struct UploadPart {};

// Its bytes came with it, so it never waits for its client.
struct PutPart {
  uint64_t cost =
      0;  // for each of its workers (put_room.h), from when it is sent until it has ended there
};

// What only a copy has.
struct CopyPart {
  bool from_other_island = false;         // receives shards from there: waits for Released
  bool to_other_island = false;           // sends shards there: reports Released
  std::vector<uint32_t> senders;          // workers that send to other workers of this island
  std::vector<uint32_t> receivers;        // workers that receive from a worker anywhere
  std::vector<wire::Worker> far_senders;  // senders on other islands
};

struct FetchPart {};

enum class NodeKind { kLaunch, kUpload, kCopy, kFetch, kPut };  // in the order of NodeState::part

// How far a node has come. Stages follow one another in this order, and only gangs that span islands have kOffered,
// kOnTurn and kAdmitted. A node that fails ends at any stage.
enum class NodeStage {
  kUnsent,   // held back from its workers (held_back.h)
  kBlocked,  // its workers have it; it waits for its producers, and for readers of what it consumes
  kReady,    // waits for memory and slots
  kOffered,  // could be released here, and waits for its turn; no device is kept for it
  kOnTurn,   // may take memory and slots before all others
  kAdmitted,  // holds both, and waits for its parts on the other islands
  kReleased,  // holds both, and runs
};

// What a node waits for of one that makes its input.
enum class Until {
  kNothing,
  kRelease,   // of an upload: its end
  kEnqueued,  // by all of its workers, on their devices
  kEnd,
};

struct NodeState {
  Ordinal ordinal;
  SessionId session;
  NodeStage stage = NodeStage::kBlocked;
  std::variant<LaunchPart, UploadPart, CopyPart, FetchPart, PutPart> part;
  wire::Node message;                   // kept only while it is unsent
  wire::ProgramLabelRef program;        // of a launch; else null
  std::vector<uint32_t> workers;        // that take part
  LayoutRef layout = Layouts::Empty();  // where memory is charged or slots are taken
  std::vector<StorageId> reads;         // each once; including the consumed ones
  std::vector<StorageId> writes;
  uint64_t result_bytes = 0;  // per device of `layout`
  uint64_t temp_bytes = 0;
  uint64_t alias_bytes = 0;  // part of result_bytes that reuses consumed storages
  wire::Dispatch dispatch = wire::DISPATCH_PARALLEL;
  // Of a sequential launch: those that have not given it to their devices.
  uint32_t workers_to_enqueue = 0;
  std::vector<Ordinal> waiters;  // nodes to unblock when this is released (an upload: ended)
  std::vector<Ordinal> enqueue_waiters;  // nodes to unblock when all of these have
  std::vector<Ordinal> end_waiters;      // nodes to unblock when this has ended
  uint32_t blockers = 0;
  std::vector<uint32_t> open_workers;  // workers that have not reported Done, ascending
  wire::FailureRef failure;
  Time arrived;
  Time released_at;
  OrderPosition position;  // of its release

  const std::vector<IslandDevice>& devices() const { return layout->sorted; }
  NodeKind kind() const { return static_cast<NodeKind>(part.index()); }
  // Null: it is of another kind.
  const LaunchPart* launch() const { return std::get_if<LaunchPart>(&part); }
  LaunchPart* launch() { return std::get_if<LaunchPart>(&part); }
  const CopyPart* copy() const { return std::get_if<CopyPart>(&part); }
  CopyPart* copy() { return std::get_if<CopyPart>(&part); }
  const PutPart* put() const { return std::get_if<PutPart>(&part); }

  bool is_launch() const { return kind() == NodeKind::kLaunch; }
  bool is_upload() const { return kind() == NodeKind::kUpload; }
  bool is_fetch() const { return kind() == NodeKind::kFetch; }
  bool spans() const { return is_launch() && launch()->spans; }
  bool calls_host() const { return is_launch() && launch()->calls_host; }
  bool released() const { return stage == NodeStage::kReleased; }
  bool admitted() const { return stage >= NodeStage::kAdmitted; }
  bool waits_for_other_islands() const {
    return stage == NodeStage::kOffered || stage == NodeStage::kAdmitted;
  }
  // Whether its workers may wait for shards, bytes or gang members that will never arrive.
  bool may_wait_for_others() const {
    return kind() == NodeKind::kCopy || is_upload() || spans() ||
           (is_launch() && workers.size() > 1);
  }
  // Whether the worker has not ended it.
  bool is_open_on(uint32_t worker) const {
    return std::ranges::binary_search(open_workers, worker);
  }
  bool has_device(IslandDevice device) const {
    return std::ranges::binary_search(devices(), device);
  }
  Until WaitsFor(const NodeState& producer) const {
    if (dispatch == wire::DISPATCH_AFTER_END) return Until::kEnd;
    if (dispatch == wire::DISPATCH_AFTER_RELEASE && producer.workers_to_enqueue > 0)
      return Until::kEnqueued;
    return producer.released() && !producer.is_upload() ? Until::kNothing : Until::kRelease;
  }
  // What it takes on each of its devices when it is admitted.
  uint64_t new_bytes() const { return result_bytes + temp_bytes - alias_bytes; }
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_NODE_H_
