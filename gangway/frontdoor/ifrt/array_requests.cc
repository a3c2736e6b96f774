// Requests that make arrays from others, or delete them. No bytes pass through here.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/base/status.h"
#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/ifrt/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/xla/dtype.h"

namespace gangway::ifrt {
namespace {

// Handles from here on come from Client::NewArrayHandle.
constexpr ArrayHandle kClientHandleEnd{uint64_t{1} << 62};

absl::Status CheckCount(size_t got, size_t want, const char* what) {
  if (got == want) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(got, " ", what, ", but ", want, " are needed"));
}

// Runs `make`; on an error poisons the results that the client named.
template <typename Make>
absl::Status OrSpoil(SessionContext& context, std::span<const ArrayHandle> named, Make make) {
  absl::Status status = make();
  return status.ok() ? status : Spoil(context, named, status);
}

std::span<const ArrayHandle> One(const ArrayHandle& handle) {
  return {&handle, handle == ArrayHandle() ? size_t{0} : size_t{1}};
}

// --- Remap ---

struct RemapPlan {
  std::vector<ArrayInfoRef> sources;
  std::vector<ArrayInfoRef> outputs;
  std::vector<Client::Regrouped> results;  // shards with array 0 are not yet filled
};

absl::Status Place(RemapPlan& plan, std::span<const ArrayHandle> handles, int64_t in, int64_t from,
                   int64_t out, int64_t to) {
  if (from < 0 || from >= static_cast<int64_t>(plan.sources[in]->devices.size()) || to < 0 ||
      to >= static_cast<int64_t>(plan.results[out].shards.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a remap from shard ", from, " to shard ", to, " is out of range"));
  }
  ShardOf& target = plan.results[out].shards[to];
  if (target.array != ArrayHandle())
    return absl::InvalidArgumentError(absl::StrCat("a remap fills shard ", to, " twice"));
  if (plan.sources[in]->shard_dims != plan.outputs[out]->shard_dims ||
      plan.sources[in]->element_type != plan.outputs[out]->element_type ||
      plan.sources[in]->devices[from] != plan.outputs[out]->devices[to]) {
    return absl::InvalidArgumentError(
        absl::StrCat("a remap to shard ", to, " changes its shape, type or device"));
  }
  target = ShardOf{handles[in], static_cast<uint32_t>(from)};
  return absl::OkStatus();
}

absl::Status CheckArrays(const RemapPlan& plan, int64_t in, int64_t out) {
  if (in < 0 || in >= static_cast<int64_t>(plan.sources.size()) || out < 0 ||
      out >= static_cast<int64_t>(plan.outputs.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a remap from array ", in, " to array ", out, " is out of range"));
  }
  return absl::OkStatus();
}

absl::Status ApplyMapping(RemapPlan& plan, std::span<const ArrayHandle> handles,
                          const xla::IfrtRemapPlanProto::Mapping& mapping) {
  GANGWAY_RETURN_IF_ERROR(CheckArrays(plan, mapping.in_array(), mapping.out_array()));
  const int count = mapping.from_start_size();
  for (int size : {mapping.from_end_size(), mapping.from_step_size(), mapping.to_start_size(),
                   mapping.to_end_size(), mapping.to_step_size()}) {
    if (size != count)
      return absl::InvalidArgumentError("the intervals of a remap differ in number");
  }
  for (int i = 0; i < count; ++i) {
    if (mapping.from_step(i) <= 0 || mapping.to_step(i) <= 0)
      return absl::InvalidArgumentError("a remap step is below 1");
    int64_t from = mapping.from_start(i), to = mapping.to_start(i);
    // Place() rejects the first index that is out of range, so hostile ends and steps cost nothing.
    while (from < mapping.from_end(i) && to < mapping.to_end(i)) {
      GANGWAY_RETURN_IF_ERROR(
          Place(plan, handles, mapping.in_array(), from, mapping.out_array(), to));
      if (__builtin_add_overflow(from, mapping.from_step(i), &from)) break;
      if (__builtin_add_overflow(to, mapping.to_step(i), &to)) break;
    }
  }
  return absl::OkStatus();
}

// The newer form: an output's shard on device d is the input's shard on d.
absl::Status ApplyDevices(RemapPlan& plan, std::span<const ArrayHandle> handles,
                          const xla::IfrtRemapPlanProto::InputDevicesForOutput& mapping) {
  for (const auto& input : mapping.inputs()) {
    GANGWAY_RETURN_IF_ERROR(CheckArrays(plan, input.in_array(), mapping.out_array()));
    const auto& from = plan.sources[input.in_array()]->devices;
    const auto& to = plan.outputs[mapping.out_array()]->devices;
    for (int32_t device : input.devices().device_ids()) {
      const auto source = std::find(from.begin(), from.end(), static_cast<uint32_t>(device));
      const auto target = std::find(to.begin(), to.end(), static_cast<uint32_t>(device));
      GANGWAY_RETURN_IF_ERROR(Place(plan, handles, input.in_array(), source - from.begin(),
                                    mapping.out_array(), target - to.begin()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RemapPlan> ReadPlan(SessionContext& context,
                                   const xla::RemapArraysRequest& request) {
  RemapPlan plan;
  const std::vector<ArrayHandle> handles = ArraysOf(request.array_handles());
  for (const ArrayHandle handle : handles) {
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, handle));
    plan.sources.push_back(std::move(source));
  }
  for (const auto& spec : request.plan().output_specs()) {
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef output, ReadArrayInfo(spec, context.devices));
    plan.results.push_back({{}, std::vector<ShardOf>(output->devices.size())});
    plan.outputs.push_back(std::move(output));
  }
  for (const auto& mapping : request.plan().mappings()) {
    GANGWAY_RETURN_IF_ERROR(ApplyMapping(plan, handles, mapping));
  }
  for (const auto& mapping : request.plan().input_devices_for_output()) {
    GANGWAY_RETURN_IF_ERROR(ApplyDevices(plan, handles, mapping));
  }
  for (const auto& result : plan.results) {
    for (const ShardOf& shard : result.shards) {
      if (shard.array == ArrayHandle())
        return absl::InvalidArgumentError("a remap leaves shards of its result empty");
    }
  }
  return plan;
}

}  // namespace

// --- Shared ---

std::vector<ArrayHandle> ArraysOf(const google::protobuf::RepeatedField<uint64_t>& list) {
  std::vector<ArrayHandle> arrays;
  arrays.reserve(static_cast<size_t>(list.size()));
  for (const uint64_t handle : list) arrays.push_back(ArrayHandle(handle));
  return arrays;
}

void ListArrays(std::span<const ArrayHandle> arrays,
                google::protobuf::RepeatedField<uint64_t>& list) {
  list.Reserve(list.size() + static_cast<int>(arrays.size()));
  for (const ArrayHandle array : arrays) list.Add(NumberOf(array));
}

absl::StatusOr<std::vector<ArrayHandle>> ResultHandles(SessionContext& context,
                                                       std::span<const ArrayHandle> named,
                                                       size_t count) {
  std::vector<ArrayHandle> handles(named.begin(), named.end());
  if (named.empty()) {
    for (size_t i = 0; i < count; ++i) handles.push_back(context.client.NewArrayHandle());
    return handles;
  }
  GANGWAY_RETURN_IF_ERROR(CheckCount(named.size(), count, "result handles"));
  for (const ArrayHandle handle : named) {
    if (handle == ArrayHandle() || handle >= kClientHandleEnd || context.arrays.contains(handle)) {
      return absl::InvalidArgumentError(
          absl::StrCat("result handle ", handle, " is in use or out of range"));
    }
  }
  return handles;
}

absl::Status Spoil(SessionContext& context, std::span<const ArrayHandle> handles,
                   const absl::Status& why) {
  std::vector<ArrayHandle> spoiled;
  for (const ArrayHandle handle : handles) {
    if (handle == ArrayHandle() || handle >= kClientHandleEnd) continue;
    if (context.arrays.try_emplace(handle, ArrayRecord{nullptr, why, false}).second)
      spoiled.push_back(handle);
  }
  if (!spoiled.empty()) context.client.Poison(spoiled, why);
  return why;
}

absl::StatusOr<ArrayInfoRef> FindArray(const SessionContext& context, ArrayHandle handle) {
  auto found = context.arrays.find(handle);
  if (found == context.arrays.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("array handle ", handle, " is unknown to this session, or was dropped"));
  }
  if (found->second.deleted) {
    return absl::FailedPreconditionError(
        absl::StrCat("array ", handle, " was deleted or donated before this use"));
  }
  if (found->second.info == nullptr) return found->second.error;
  return found->second.info;
}

// --- Requests ---

absl::Status MakeErrorArrays(SessionContext& context, const xla::MakeErrorArraysRequest& request,
                             IfrtResponse& response) {
  absl::Status why = FromProto(request.error());
  if (why.ok()) why = absl::UnknownError("the client made error arrays without an error");
  const std::vector<ArrayHandle> named = ArraysOf(request.array_handles());
  absl::StatusOr<std::vector<ArrayHandle>> handles =
      ResultHandles(context, named, request.array_specs_size());
  if (!handles.ok()) return Spoil(context, named, handles.status());
  for (size_t i = 0; i < handles->size(); ++i) {
    const auto& spec = request.array_specs(static_cast<int>(i));
    absl::StatusOr<ArrayInfoRef> info = ReadArrayInfo(spec, context.devices);
    context.arrays[(*handles)[i]] = ArrayRecord{info.ok() ? *info : nullptr, why, false};
  }
  context.client.Poison(*handles, why);
  ListArrays(*handles, *response.mutable_make_error_arrays()->mutable_array_handles());
  return absl::OkStatus();
}

absl::Status AssembleArray(SessionContext& context, const xla::AssembleArrayRequest& request,
                           IfrtResponse& response) {
  const ArrayHandle named{request.result_handle()};
  return OrSpoil(context, One(named), [&]() -> absl::Status {
    Client::Regrouped result;
    xla::IfrtDTypeProto dtype = request.dtype();
    for (const ArrayHandle handle : ArraysOf(request.single_device_array_handles())) {
      GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, handle));
      if (source->devices.size() != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("array ", handle, " to assemble is not on a single device"));
      }
      GANGWAY_ASSIGN_OR_RETURN(xla::IfrtDTypeProto::Kind kind, xla::ToIfrt(source->element_type));
      if (dtype.kind() == xla::IfrtDTypeProto::KIND_UNSPECIFIED) dtype.set_kind(kind);
      if (dtype.kind() != kind)
        return absl::InvalidArgumentError("arrays to assemble differ in element type");
      result.shards.push_back(ShardOf{handle, 0});
    }
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef info, ReadArrayInfo(dtype, request.shape(),
                                                              request.sharding(), context.devices));
    GANGWAY_RETURN_IF_ERROR(CheckCount(result.shards.size(), info->devices.size(), "arrays"));
    for (size_t i = 0; i < result.shards.size(); ++i) {
      const ArrayInfo& shard = *context.arrays[result.shards[i].array].info;
      if (shard.dims != info->shard_dims || shard.devices[0] != info->devices[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat("array ", i, " to assemble has another shape or device than its shard"));
      }
    }
    GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                             ResultHandles(context, One(named), 1));
    result.array = handles.front();
    context.arrays[result.array].info = std::move(info);
    response.mutable_assemble_array()->set_array_handle(NumberOf(result.array));
    std::vector<Client::Regrouped> results;
    results.push_back(std::move(result));
    context.client.Regroup(std::move(results));
    return absl::OkStatus();
  });
}

absl::Status RemapArrays(SessionContext& context, const xla::RemapArraysRequest& request,
                         IfrtResponse& response) {
  const std::vector<ArrayHandle> named = ArraysOf(request.result_handles());
  return OrSpoil(context, named, [&]() -> absl::Status {
    GANGWAY_ASSIGN_OR_RETURN(RemapPlan plan, ReadPlan(context, request));
    GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                             ResultHandles(context, named, plan.outputs.size()));
    for (size_t i = 0; i < handles.size(); ++i) {
      plan.results[i].array = handles[i];
      context.arrays[handles[i]].info = plan.outputs[i];
    }
    context.client.Regroup(std::move(plan.results));
    ListArrays(handles, *response.mutable_remap_arrays()->mutable_array_handles());
    return absl::OkStatus();
  });
}

absl::Status Disassemble(SessionContext& context, const xla::DisassembleRequest& request,
                         IfrtResponse& response) {
  const std::vector<ArrayHandle> named = ArraysOf(request.result_handles());
  return OrSpoil(context, named, [&]() -> absl::Status {
    const ArrayHandle array{request.array_handle()};
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, array));
    const size_t count = source->devices.size();
    GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                             ResultHandles(context, named, count));
    std::vector<Client::Regrouped> results;
    for (size_t i = 0; i < count; ++i) {
      results.push_back({handles[i], {ShardOf{array, static_cast<uint32_t>(i)}}});
      context.arrays[handles[i]].info = ShardInfo(*source, i);
    }
    context.client.Regroup(std::move(results));
    ListArrays(handles, *response.mutable_disassemble()->mutable_array_handles());
    return absl::OkStatus();
  });
}

absl::Status CopyArrays(SessionContext& context, const xla::CopyArraysRequest& request,
                        IfrtResponse& response) {
  const std::vector<ArrayHandle> named = ArraysOf(request.result_handles());
  return OrSpoil(context, named, [&]() -> absl::Status {
    response.mutable_copy_arrays();
    if (request.array_handles().empty()) return absl::OkStatus();
    std::vector<ArrayInfoRef> infos;
    std::vector<uint32_t> devices(request.device_ids().begin(), request.device_ids().end());
    std::string memory_kind;
    const std::vector<ArrayHandle> sources = ArraysOf(request.array_handles());
    for (const ArrayHandle handle : sources) {
      GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, handle));
      if (devices.empty()) devices = source->devices;
      GANGWAY_RETURN_IF_ERROR(CheckCount(devices.size(), source->devices.size(), "devices"));
      auto info = std::make_shared<ArrayInfo>(*source);
      info->devices = devices;
      if (request.has_memory_kind())
        info->memory_kind = MemoryKindFromClient(request.memory_kind());
      memory_kind = info->memory_kind;
      infos.push_back(std::move(info));
    }
    for (uint32_t device : devices) {
      if (!context.devices.contains(device)) {
        return absl::InvalidArgumentError(
            absl::StrCat("device ", device, " is not one of the cluster's"));
      }
    }
    GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                             ResultHandles(context, named, sources.size()));
    context.client.Copy(sources, handles, devices, memory_kind);
    for (size_t i = 0; i < handles.size(); ++i) {
      context.arrays[handles[i]].info = infos[i];
      if (request.copy_semantics() == xla::COPY_SEMANTICS_DONATE_INPUT) {
        context.arrays[sources[i]].deleted = true;
      }
    }
    ListArrays(handles, *response.mutable_copy_arrays()->mutable_array_handles());
    return absl::OkStatus();
  });
}

absl::Status FullyReplicatedShard(SessionContext& context,
                                  const xla::FullyReplicatedShardRequest& request,
                                  IfrtResponse& response) {
  const ArrayHandle named{request.result_handle()};
  return OrSpoil(context, One(named), [&]() -> absl::Status {
    const ArrayHandle array{request.array_handle()};
    GANGWAY_ASSIGN_OR_RETURN(ArrayInfoRef source, FindArray(context, array));
    if (!source->fully_replicated) {
      return absl::InvalidArgumentError(
          absl::StrCat("array ", request.array_handle(), " is not fully replicated"));
    }
    GANGWAY_ASSIGN_OR_RETURN(std::vector<ArrayHandle> handles,
                             ResultHandles(context, One(named), 1));
    context.arrays[handles.front()].info =
        source->devices.size() == 1 ? source : ShardInfo(*source, 0);
    Client::Regrouped shard{.array = handles.front()};
    if (source->devices.size() == 1) {
      shard.shards.push_back(ShardOf{array, 0});
    } else {
      // JAX's client takes the shard to be on the first device, and only reads it: any replica will do, and one on a
      // lost worker does not hide the others.
      shard.replica_of = array;
    }
    std::vector<Client::Regrouped> results;
    results.push_back(std::move(shard));
    context.client.Regroup(std::move(results));
    response.mutable_fully_replicated_shard()->set_array_handle(NumberOf(handles.front()));
    return absl::OkStatus();
  });
}

absl::Status DeleteArrays(SessionContext& context, const xla::DeleteArrayRequest& request,
                          IfrtResponse& response) {
  const std::vector<ArrayHandle> arrays = ArraysOf(request.array_handles());
  for (const ArrayHandle handle : arrays) {
    if (auto found = context.arrays.find(handle); found != context.arrays.end())
      found->second.deleted = true;
  }
  context.client.Delete(arrays);
  // A deletion is complete once it is submitted: any later use of the handle follows it.
  response.mutable_delete_array()->set_deletion_future_handle(
      NumberOf(context.client.NewArrayHandle()));
  return absl::OkStatus();
}

absl::Status IsArrayDeleted(SessionContext& context, const xla::IsArrayDeletedRequest& request,
                            IfrtResponse& response) {
  auto found = context.arrays.find(ArrayHandle(request.array_handle()));
  response.mutable_is_array_deleted()->set_deleted(found == context.arrays.end() ||
                                                   found->second.deleted);
  return absl::OkStatus();
}

absl::Status DestructArrays(SessionContext& context, const xla::DestructArrayRequest& request,
                            IfrtResponse& response) {
  const std::vector<ArrayHandle> arrays = ArraysOf(request.array_handles());
  for (const ArrayHandle handle : arrays) context.arrays.erase(handle);
  context.client.Drop(arrays);
  response.mutable_destruct_array();
  return absl::OkStatus();
}

void CheckValueReady(SessionContext& context, uint64_t op_id,
                     const xla::CheckValueReadyRequest& request) {
  context.client.Await(ArraysOf(request.value_handles()),
                       [&replies = context.replies, op_id](absl::Status status) {
                         if (!status.ok()) return replies.Send(ErrorReply(op_id, status));
                         IfrtResponse response = ReplyTo(op_id);
                         response.mutable_check_value_ready();
                         replies.Send(std::move(response));
                       });
}

}  // namespace gangway::ifrt
