// The part of session_arrays.h that makes arrays of shards of others, and finds the shards that operations name.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/controller/core/session_arrays.h"

namespace gangway::controller {
namespace {

wire::FailureRef Refuse(std::string_view message) {
  return wire::Share(wire::MakeFailure(absl::StatusCode::kInvalidArgument, message));
}

bool SameTensor(const ArrayShapeRef& a, const ArrayShapeRef& b) {
  return a == b || (a->element_type == b->element_type && a->shard_dims == b->shard_dims);
}

// The run that has this shard of an array, which has runs.
const Run& RunOf(const Array& array, uint32_t shard) {
  auto after = std::upper_bound(array.runs.begin(), array.runs.end(), shard,
                                [](uint32_t at, const Run& run) { return at < run.position; });
  return *std::prev(after);
}

void AppendShard(const Array& source, uint32_t shard, NamedShards& view) {
  const Run& run = RunOf(source, shard);
  const uint32_t index = run.first + (shard - run.position);  // in the storage
  const auto position = static_cast<uint32_t>(view.devices.size());
  view.devices.push_back(source.devices->devices()[shard].number());
  Run* last = view.runs.empty() ? nullptr : &view.runs.back();
  if (last != nullptr && last->storage == run.storage && last->first + last->count == index) {
    ++last->count;
  } else {
    view.runs.push_back({run.storage, index, 1, position});
  }
}

}  // namespace

void SessionArrays::OnRegroup(const wire::RegroupOp& op) {
  for (const wire::RegroupOp::Result& result : op.results()) {
    Array array;
    if (auto failure = Regroup(result, array)) {
      BindFailure(ArrayHandle(result.array()), std::move(failure));
    } else {
      Bind(ArrayHandle(result.array()), std::move(array));
    }
  }
}

wire::FailureRef SessionArrays::Regroup(const wire::RegroupOp::Result& result, Array& array) const {
  NamedShards view;
  if (result.replica_of() != 0) {
    if (auto failure = TakeReplica(ArrayHandle(result.replica_of()), view)) return failure;
  } else if (result.shards().empty()) {
    return Refuse("an array needs at least one shard");
  }
  absl::flat_hash_set<uint32_t> devices;
  for (const wire::RegroupOp::Shard& shard : result.shards()) {
    if (result.replica_of() != 0) break;
    if (auto failure = AddShard(ArrayHandle(shard.array()), shard.shard(), view)) return failure;
    const uint32_t device = view.devices.back();
    if (result.shards_size() > 1 && !devices.insert(device).second)
      return Refuse(absl::StrCat("an array cannot have two shards on device ", device));
  }
  array.shape = std::move(view.shape);
  array.devices = fleet_.ListOf(view.devices);
  array.runs = std::move(view.runs);
  return nullptr;
}

wire::FailureRef SessionArrays::AddShard(ArrayHandle handle, uint32_t shard,
                                         NamedShards& view) const {
  if (auto failure = FindShard(handle, shard, view)) return failure;
  const ArrayShapeRef& shape = Find(handle)->shape;
  if (view.shape == nullptr) {
    view.shape = shape;
  } else if (!SameTensor(view.shape, shape)) {
    return Refuse("the shards of one array must have the same type and shape");
  }
  return nullptr;
}

wire::FailureRef SessionArrays::AddShards(const wire::GatheredArgument& list,
                                          NamedShards& view) const {
  for (int i = 0; i < list.arrays_size(); ++i)
    if (auto failure = AddShard(ArrayHandle(list.arrays(i)), list.shards(i), view)) return failure;
  return nullptr;
}

wire::FailureRef SessionArrays::FindWanted(const wire::FetchOp& op, NamedShards& view) const {
  if (op.arrays().empty() || op.arrays_size() != op.shards_size()) {
    return Refuse(absl::StrCat("a fetch lists ", op.arrays_size(), " arrays and ", op.shards_size(),
                               " shards: it needs an array for each shard, and at least one"));
  }
  for (int i = 0; i < op.arrays_size(); ++i)
    if (auto failure = FindShard(ArrayHandle(op.arrays(i)), op.shards(i), view)) return failure;
  return nullptr;
}

wire::FailureRef SessionArrays::FindShard(ArrayHandle handle, uint32_t shard,
                                          NamedShards& view) const {
  const Array* source = Find(handle);
  if (source == nullptr || source->failure) return CheckUsable(handle);
  if (shard >= source->devices->size()) {
    return Refuse(absl::StrCat("array ", handle, " has ", source->devices->size(),
                               " shards, shard ", shard, " was requested"));
  }
  const Run& run = RunOf(*source, shard);
  if (run.count == 0) return TakenFailure(handle);
  const Run only{run.storage, run.first + (shard - run.position), 1};
  if (storages_.AnyGone(only)) return TakenFailure(handle);
  if (auto failure = storages_.FailureOf(only)) return failure;
  AppendShard(*source, shard, view);
  return nullptr;
}

// The first good shard. Without one: why the array is spoiled.
wire::FailureRef SessionArrays::TakeReplica(ArrayHandle handle, NamedShards& view) const {
  const Array* source = Find(handle);
  if (source == nullptr || source->failure) return CheckUsable(handle);
  for (const Run& run : source->runs) {
    if (run.count == 0) continue;  // it was dropped, and its storage may be gone
    const std::optional<uint32_t> good = storages_.FirstGood(run);
    if (!good) continue;
    view.shape = source->shape;
    AppendShard(*source, run.position + (*good - run.first), view);
    return nullptr;
  }
  return CheckUsable(handle);
}

}  // namespace gangway::controller
