// Views: arrays made of shards of others (OB-1). Each view answers for its own shards only.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using absl::StatusCode;

wire::FailureRef Refuse(std::string_view message, std::string_view advice = "") {
  return wire::Share(wire::MakeFailure(StatusCode::kInvalidArgument, message, advice));
}

bool SameTensor(const wire::ArraySpec& a, const wire::ArraySpec& b) {
  return a.element_type() == b.element_type() && std::ranges::equal(a.shard_dims(), b.shard_dims());
}

// All but the devices.
void CopyTensor(const wire::ArraySpec& from, wire::ArraySpec& to) {
  to.set_element_type(from.element_type());
  *to.mutable_shard_dims() = from.shard_dims();
  to.set_memory_kind(from.memory_kind());
  to.set_shard_bytes(from.shard_bytes());
}

}  // namespace

void Controller::OnRegroup(SessionId id, Session& session, const wire::RegroupOp& op,
                           Actions& actions) {
  for (const wire::RegroupOp::Result& result : op.results()) {
    Array array;
    if (auto failure = Regroup(session, result, array)) {
      BindFailure(id, session, result.array(), std::move(failure), actions);
    } else {
      Bind(id, session, result.array(), std::move(array), actions);
    }
  }
}

wire::FailureRef Controller::Regroup(const Session& session, const wire::RegroupOp::Result& result,
                                     Array& array) const {
  if (result.replica_of() != 0) return TakeReplica(session, result.replica_of(), array);
  if (result.shards().empty()) return Refuse("an array needs at least one shard");
  absl::flat_hash_set<uint32_t> devices;
  for (const wire::RegroupOp::Shard& shard : result.shards()) {
    if (auto failure = AddShard(session, shard, array)) return failure;
    const uint32_t device = *array.spec.devices().rbegin();
    if (result.shards_size() > 1 && !devices.insert(device).second)
      return Refuse(absl::StrCat("an array cannot have two shards on device ", device));
  }
  return nullptr;
}

wire::FailureRef Controller::AddShard(const Session& session, const wire::RegroupOp::Shard& shard,
                                      Array& array) const {
  const bool is_first = array.runs.empty();
  if (auto failure = FindShard(session, shard.array(), shard.shard(), array)) return failure;
  const wire::ArraySpec& spec = FindArray(session, shard.array())->spec;
  if (is_first) {
    CopyTensor(spec, array.spec);
  } else if (!SameTensor(array.spec, spec)) {
    return Refuse("the shards of one array must have the same type and shape");
  }
  return nullptr;
}

wire::FailureRef Controller::FindWanted(const Session& session, const wire::FetchOp& op,
                                        Array& view) const {
  if (op.arrays().empty() || op.arrays_size() != op.shards_size()) {
    return Refuse(absl::StrCat("a fetch lists ", op.arrays_size(), " arrays and ", op.shards_size(),
                               " shards: it needs an array for each shard, and at least one"));
  }
  for (int i = 0; i < op.arrays_size(); ++i)
    if (auto failure = FindShard(session, op.arrays(i), op.shards(i), view)) return failure;
  return nullptr;
}

wire::FailureRef Controller::FindShard(const Session& session, uint64_t handle, uint32_t shard,
                                       Array& view) const {
  const Array* source = FindArray(session, handle);
  if (source == nullptr || source->failure) return CheckUsable(session, handle);
  if (shard >= static_cast<uint32_t>(source->spec.devices_size())) {
    return Refuse(absl::StrCat("array ", handle, " has ", source->spec.devices_size(),
                               " shards, shard ", shard, " was requested"));
  }
  const Run& run = RunOf(*source, shard);
  if (run.count == 0) return ConsumedFailure(handle);
  const Storage& storage = storages_.at(run.storage);
  const uint32_t index = run.first + (shard - run.position);
  if (storage.holds.gone(index)) return ConsumedFailure(handle);
  if (auto failure = storage.FailureOf(index)) return failure;
  AppendShard(*source, shard, view);
  return nullptr;
}

// The first good shard. Without one: why the array is spoiled.
wire::FailureRef Controller::TakeReplica(const Session& session, uint64_t handle,
                                         Array& array) const {
  const Array* source = FindArray(session, handle);
  if (source == nullptr || source->failure) return CheckUsable(session, handle);
  for (const Run& run : source->runs) {
    if (run.count == 0) continue;
    const Storage& storage = storages_.at(run.storage);
    if (storage.failure) continue;
    for (uint32_t i = 0; i < run.count; ++i) {
      if (storage.holds.gone(run.first + i) || storage.FailureOf(run.first + i)) continue;
      CopyTensor(source->spec, array.spec);
      AppendShard(*source, run.position + i, array);
      return nullptr;
    }
  }
  return CheckUsable(session, handle);
}

// The run that has this shard of an array, which has runs.
const Controller::Run& Controller::RunOf(const Array& array, uint32_t shard) {
  auto after = std::upper_bound(array.runs.begin(), array.runs.end(), shard,
                                [](uint32_t at, const Run& run) { return at < run.position; });
  return *std::prev(after);
}

void Controller::AppendShard(const Array& source, uint32_t shard, Array& array) {
  const Run& run = RunOf(source, shard);
  const uint32_t index = run.first + (shard - run.position);  // in the storage
  const auto position = static_cast<uint32_t>(array.spec.devices_size());
  array.spec.add_devices(source.spec.devices(static_cast<int>(shard)));
  Run* last = array.runs.empty() ? nullptr : &array.runs.back();
  if (last != nullptr && last->storage == run.storage && last->first + last->count == index) {
    ++last->count;
  } else {
    array.runs.push_back({run.storage, index, 1, position});
  }
}

}  // namespace gangway::controller
