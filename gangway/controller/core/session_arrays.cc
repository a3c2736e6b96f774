// Implementation of session_arrays.h: handles, and what they hold (OB-1).
#include "gangway/controller/core/session_arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

constexpr size_t kArraysMax = size_t{4} << 20;  // of one session (TM-2)

}  // namespace

void FillRef(const std::vector<Run>& runs, wire::ArrayRef& ref) {
  for (const Run& run : runs) {
    wire::ShardRun* out = ref.add_runs();
    out->set_storage(run.storage.number());
    out->set_first(run.first);
    out->set_count(run.count);
  }
}

const Array* SessionArrays::Find(ArrayHandle handle) const {
  auto it = arrays_.find(handle);
  return it == arrays_.end() ? nullptr : &it->second;
}

wire::FailureRef SessionArrays::FailureOf(const Array& array) const {
  if (array.failure) return array.failure;
  for (const Run& run : array.runs) {
    if (run.count == 0) continue;
    if (auto failure = storages_.FailureOf(run)) return failure;
  }
  return nullptr;
}

wire::FailureRef SessionArrays::CheckUsable(ArrayHandle handle) const {
  const Array* array = Find(handle);
  if (array == nullptr) {
    return wire::Share(wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("array handle ", handle, " is not known in this session"),
        "It was dropped before this use, or belongs to another session; keep a reference to it."));
  }
  for (const Run& run : array->runs)
    if (run.count == 0 || storages_.AnyGone(run)) return TakenFailure(handle);
  return FailureOf(*array);
}

wire::FailureRef SessionArrays::TakenFailure(ArrayHandle handle) {
  return wire::Share(wire::MakeFailure(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("Array has been deleted or donated (handle ", handle, ")"),
      "Use the results of the call that it was donated to, or do not donate it."));
}

bool SessionArrays::CanBind(ArrayHandle handle) const {
  return handle != ArrayHandle() && !arrays_.contains(handle) && arrays_.size() < kArraysMax;
}

// A handle in use keeps its array: the client broke the rule that handles are not reused.
void SessionArrays::Bind(ArrayHandle handle, Array array) {
  for (const Run& run : array.runs) storages_.Hold(run);
  if (CanBind(handle)) {
    arrays_[handle] = std::move(array);
    return;
  }
  for (const Run& run : array.runs) storages_.LetGo(run);
}

void SessionArrays::BindFailure(ArrayHandle handle, wire::FailureRef failure) {
  Array array;
  array.failure = std::move(failure);
  Bind(handle, std::move(array));
}

void SessionArrays::Unbind(ArrayHandle handle, DropMode mode) {
  auto it = arrays_.find(handle);
  if (it == arrays_.end()) return;
  const Array array = std::move(it->second);
  arrays_.erase(it);
  for (const Run& run : array.runs) {
    if (mode == DropMode::kTake) storages_.Take(run);
    storages_.LetGo(run);
  }
}

void SessionArrays::OnDrop(const wire::DropOp& op, DropMode mode) {
  for (const uint64_t handle : op.handles()) Unbind(ArrayHandle(handle), mode);
}

// From now on each shard of the array can be dropped alone.
void SessionArrays::Split(Array& array) {
  if (std::exchange(array.is_split, true)) return;
  std::vector<Run> single;
  for (const Run& run : array.runs) storages_.Split(run, single);
  array.runs = std::move(single);
}

void SessionArrays::OnDropShards(const wire::DropShardsOp& op, DropMode mode) {
  for (const wire::DropShardsOp::Shards& shards : op.arrays()) {
    auto found = arrays_.find(ArrayHandle(shards.array()));
    if (found == arrays_.end() || found->second.failure) continue;
    Array& array = found->second;
    Split(array);
    for (const uint32_t shard : shards.shards()) {
      if (shard >= array.runs.size()) continue;
      Run& run = array.runs[shard];
      if (mode == DropMode::kTake) storages_.Take(run);
      storages_.LetGo(run);
      run.count = 0;
    }
  }
}

void SessionArrays::OnPoison(wire::PoisonOp& op) {
  wire::Failure failure = std::move(*op.mutable_failure());
  if (failure.code() == 0)
    failure = wire::MakeFailure(absl::StatusCode::kUnknown, "created as an error without a reason");
  wire::Clip(failure);
  const wire::FailureRef shared = wire::Share(std::move(failure));
  for (const uint64_t handle : op.arrays()) BindFailure(ArrayHandle(handle), shared);
}

void SessionArrays::Close() {
  std::vector<ArrayHandle> handles;
  for (const auto& [handle, array] : arrays_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end());  // the same order in every run of a simulation
  for (const ArrayHandle handle : handles) Unbind(handle, DropMode::kLetGo);
}

}  // namespace gangway::controller
