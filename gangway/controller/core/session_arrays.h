// One session's arrays, by the client's handles: each is a shape, a list of devices, and the runs of shards that it
// holds, or an error (ER-1). Views are arrays made of shards of others (OB-1); each answers for its own shards only. A
// handle means nothing outside its session (OB-3), and one in use keeps its array.
//
// Shapes and lists of devices are shared: the results of a launch cost no copy of either.
//
// Pure; not thread-safe. Stands on Fleet, for the lists, and on Storages.
#ifndef GANGWAY_CONTROLLER_CORE_SESSION_ARRAYS_H_
#define GANGWAY_CONTROLLER_CORE_SESSION_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/storages.h"
#include "gangway/program/array_shape.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct Array {
  wire::FailureRef
      failure;  // its own, and it has nothing else; otherwise its storages' failures apply
  ArrayShapeRef shape;
  DeviceListRef devices;
  std::vector<Run> runs;  // by position
  bool is_split = false;  // each run is of one shard, since some were dropped alone
};

// Shards that an operation names one by one. A device may have several.
struct NamedShards {
  ArrayShapeRef shape;  // null: they differ
  std::vector<uint32_t> devices;
  std::vector<Run> runs;
};

void FillRef(const std::vector<Run>& runs, wire::ArrayRef& ref);

// What becomes of the shards of a handle that goes.
enum class DropMode {
  kLetGo,  // other arrays that hold them keep them
  kTake,   // they are freed, whatever other arrays hold them
};

class SessionArrays {
 public:
  SessionArrays(Fleet& fleet, Storages& storages) : fleet_(fleet), storages_(storages) {}

  const Array* Find(ArrayHandle handle) const;  // null: unknown
  // Whether an operation may use this array as input: known here, not freed, not taken, not spoiled.
  wire::FailureRef CheckUsable(ArrayHandle handle) const;
  wire::FailureRef FailureOf(const Array& array) const;
  size_t size() const { return arrays_.size(); }

  bool CanBind(ArrayHandle handle) const;
  // Holds the array's runs under this handle. If it cannot be bound, the array is dropped.
  void Bind(ArrayHandle handle, Array array);
  void BindFailure(ArrayHandle handle, wire::FailureRef failure);

  void OnDrop(const wire::DropOp& op, DropMode mode);
  // The arrays live on with their other shards, until their handles are dropped.
  void OnDropShards(const wire::DropShardsOp& op, DropMode mode);
  void OnPoison(wire::PoisonOp& op);
  void OnRegroup(const wire::RegroupOp& op);
  void Close();  // drops all, in the order of their handles

  // Appends one shard of an array to the view: of the same type and shape as those before.
  wire::FailureRef AddShard(ArrayHandle handle, uint32_t shard, NamedShards& view) const;
  // Likewise all that a list names, which has as many arrays as shards.
  wire::FailureRef AddShards(const wire::GatheredArgument& list, NamedShards& view) const;
  // Appends the shards that a fetch wants, which may differ.
  wire::FailureRef FindWanted(const wire::FetchOp& op, NamedShards& view) const;

 private:
  static wire::FailureRef TakenFailure(ArrayHandle handle);  // its shards are freed
  void Unbind(ArrayHandle handle, DropMode mode);
  void Split(Array& array);
  wire::FailureRef Regroup(const wire::RegroupOp::Result& result, Array& array) const;
  wire::FailureRef TakeReplica(ArrayHandle handle, NamedShards& view) const;
  wire::FailureRef FindShard(ArrayHandle handle, uint32_t shard, NamedShards& view) const;

  Fleet& fleet_;
  Storages& storages_;
  absl::flat_hash_map<ArrayHandle, Array> arrays_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SESSION_ARRAYS_H_
