// ReshardArrays: the same array on other devices, if each shard of the result is a shard of the
// source. No shard is split or joined: each is a copy from worker to worker. No bytes pass through
// here.
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/requests.h"

namespace gangway::ifrt {
namespace {

// The source shard for each shard of the result. If the result needs more copies of a shard than
// the source has, they go in several waves; within a wave, no shard is named twice.
struct Wave {
  std::vector<ShardOf> shards;
  std::vector<size_t> positions;  // in the result
  std::vector<uint32_t> devices;
};

absl::StatusOr<std::vector<Wave>> PlanWaves(ArrayHandle handle, const ArrayInfo& source,
                                            const ArrayInfo& result) {
  if (source.element_type != result.element_type || source.dims != result.dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("array ", handle, " cannot be resharded to another shape or element type"));
  }
  if (source.shard_dims != result.shard_dims || source.offsets.empty() || result.offsets.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "resharding array ", handle,
        " would split its shards differently: change its PartitionSpec on the mesh that it is "
        "on, with jit(lambda x: x, out_shardings=...), and then reshard it"));
  }
  absl::flat_hash_map<std::vector<int64_t>, std::vector<uint32_t>> shards_at;
  for (uint32_t i = 0; i < source.offsets.size(); ++i) shards_at[source.offsets[i]].push_back(i);
  absl::flat_hash_map<std::vector<int64_t>, size_t> used;
  std::vector<Wave> waves;
  for (size_t i = 0; i < result.offsets.size(); ++i) {
    const auto found = shards_at.find(result.offsets[i]);
    if (found == shards_at.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("array ", handle, " does not hold all shards that the reshard needs"));
    }
    const size_t before = used[result.offsets[i]]++;
    const size_t wave = before / found->second.size();
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].shards.push_back({handle, found->second[before % found->second.size()]});
    waves[wave].positions.push_back(i);
    waves[wave].devices.push_back(result.devices[i]);
  }
  return waves;
}

void Regroup(Client& client, ArrayHandle array, std::vector<ShardOf> shards) {
  std::vector<Client::Regrouped> results;
  results.push_back({array, std::move(shards)});
  client.Regroup(std::move(results));
}

void Reshard(Client& client, const std::vector<Wave>& waves, ArrayHandle result,
             const ArrayInfo& info) {
  std::vector<ArrayHandle> ours;
  std::vector<ShardOf> gathered(info.devices.size());
  for (const Wave& wave : waves) {
    const ArrayHandle chosen = client.NewArrayHandle();
    const ArrayHandle copied = waves.size() == 1 ? result : client.NewArrayHandle();
    Regroup(client, chosen, wave.shards);
    client.Copy({&chosen, 1}, {&copied, 1}, wave.devices, info.memory_kind);
    ours.push_back(chosen);
    if (copied == result) continue;
    ours.push_back(copied);
    for (uint32_t i = 0; i < wave.positions.size(); ++i)
      gathered[wave.positions[i]] = ShardOf{copied, i};
  }
  if (waves.size() > 1) Regroup(client, result, std::move(gathered));
  client.Drop(ours);
}

absl::Status ReshardAll(SessionContext& context, const xla::ReshardArraysRequest& request,
                        std::span<const ArrayHandle> named, IfrtResponse& response) {
  if (request.array_specs_size() != request.array_handles_size())
    return absl::InvalidArgumentError("the arrays and the results of a reshard differ in number");
  const std::vector<ArrayHandle> sources = ArraysOf(request.array_handles());
  std::vector<ArrayInfoRef> infos;
  std::vector<std::vector<Wave>> plans;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& spec = request.array_specs(static_cast<int>(i));
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, sources[i]));
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef info, ReadArrayInfo(spec, context.devices));
    GANGWAY_ASSIGN_OR_RETURN(std::vector<Wave> waves, PlanWaves(sources[i], *source, *info));
    infos.push_back(std::move(info));
    plans.push_back(std::move(waves));
  }
  GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                           ResultHandles(context, named, infos.size()));
  for (size_t i = 0; i < handles.size(); ++i) {
    Reshard(context.client, plans[i], handles[i], *infos[i]);
    context.arrays[handles[i]].info = infos[i];
    if (request.copy_semantics() == xla::COPY_SEMANTICS_DONATE_INPUT)
      context.arrays[sources[i]].deleted = true;
  }
  ListArrays(handles, *response.mutable_reshard_arrays()->mutable_array_handles());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReshardArrays(SessionContext& context, const xla::ReshardArraysRequest& request,
                           IfrtResponse& response) {
  const std::vector<ArrayHandle> named = ArraysOf(request.result_handles());
  absl::Status status = ReshardAll(context, request, named, response);
  return status.ok() ? status : Spoil(context, named, status);
}

}  // namespace gangway::ifrt
