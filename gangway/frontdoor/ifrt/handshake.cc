// Version negotiation, and requests about the cluster: its devices, default layouts and
// assignments.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/frontdoor/ifrt/requests.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/xla/layout.h"

namespace gangway::ifrt {
namespace {

void SetInt(xla::AttributeMapProto& map, const char* name, int64_t value) {
  (*map.mutable_attributes())[name].set_int64_value(value);
}
void SetBool(xla::AttributeMapProto& map, const char* name, bool value) {
  (*map.mutable_attributes())[name].set_bool_value(value);
}

void AddDevice(const DeviceInfo& device, const std::string& platform, xla::InitResponse& init) {
  const std::string place =
      absl::StrCat("island ", device.island, ", worker ", device.worker, ", index ", device.index);
  auto& proto = *init.add_all_devices();
  proto.set_id(static_cast<int32_t>(device.id));
  proto.set_local_device_id(static_cast<int32_t>(device.id));
  proto.set_local_hardware_id(static_cast<int32_t>(device.id));
  proto.set_platform_name(platform);
  proto.set_device_kind(device.kind);
  proto.set_debug_string(absl::StrCat("GangwayDevice(id=", device.id, ", ", place, ")"));
  proto.set_to_string(absl::StrCat("GangwayDevice(id=", device.id, ")"));
  for (const PluginAttribute& attribute : device.attributes) {
    if (const auto* number = std::get_if<int64_t>(&attribute.value))
      SetInt(*proto.mutable_attributes(), attribute.name.c_str(), *number);
    if (const auto* text = std::get_if<std::string>(&attribute.value))
      (*proto.mutable_attributes()->mutable_attributes())[attribute.name].set_string_value(*text);
  }
  SetInt(*proto.mutable_attributes(), "slice_index", device.island);
  SetInt(*proto.mutable_attributes(), "worker_index", device.worker);
  init.add_primary_device_ids(proto.id());
  init.add_addressable_device_ids(proto.id());
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    auto& memory = *init.add_memories();
    memory.set_id(MemoryId(device.id, kind));
    memory.set_kind(kMemoryKinds[kind]);
    memory.set_kind_id(kind);
    memory.add_device_ids(proto.id());
    memory.set_debug_string(absl::StrCat("GangwayMemory(", kMemoryKinds[kind], ", device ",
                                         device.id, ", ", place, ")"));
    memory.set_to_string(
        absl::StrCat("GangwayMemory(", kMemoryKinds[kind], ", device ", device.id, ")"));
    proto.add_memory_ids(memory.id());
  }
  proto.set_default_memory_id(MemoryId(device.id, 0));
}

}  // namespace

absl::StatusOr<::xla::ifrt::proxy::Version> NegotiateVersion(
    const ::xla::ifrt::proxy::Version& client_min, const ::xla::ifrt::proxy::Version& client_max) {
  const int version = std::min(client_max.protocol(), kProtocolVersionMax);
  if (version < client_min.protocol() || version < kProtocolVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("this JAX speaks versions ", client_min.protocol(), " to ",
                     client_max.protocol(), " of the IFRT proxy protocol, Gangway ",
                     kProtocolVersionMin, " to ", kProtocolVersionMax, "; use a jaxlib ",
                     client_max.protocol() < kProtocolVersionMin
                         ? "of 0.8.0 or newer"
                         : "that still speaks these, or a newer Gangway"));
  }
  ::xla::ifrt::proxy::Version result;
  result.set_protocol(version);
  result.set_serdes(client_max.serdes());
  return result;
}

absl::Status Init(SessionContext& context, IfrtResponse& response) {
  const ClusterInfo& cluster = context.client.cluster();
  xla::InitResponse& init = *response.mutable_init();
  init.set_session_id(context.session_id);
  init.set_platform_name(cluster.platform);
  init.set_platform_version(absl::StrCat("gangway; ", cluster.platform_version));
  init.set_platform_id(std::hash<std::string>()(cluster.platform));
  init.set_process_index(0);  // one controller: there is no other process
  init.set_runtime_type("gangway");
  for (const DeviceInfo& device : cluster.devices) AddDevice(device, cluster.platform, init);
  xla::AttributeMapProto& attributes = *init.mutable_client_attributes();
  SetBool(attributes, "serialize_with_sdy", true);
  SetBool(attributes, "supports_executable_serialization", false);
  SetBool(attributes, "supports_cross_host_transfers", false);
  return absl::OkStatus();
}

absl::Status DefaultLayout(SessionContext& context, const xla::DefaultLayoutRequest& request,
                           IfrtResponse& response) {
  response.mutable_default_layout()->set_serialized_layout(
      xla::RowMajorText(static_cast<size_t>(request.dims_size())));
  return absl::OkStatus();
}

absl::Status DefaultDeviceAssignment(SessionContext& context,
                                     const xla::DefaultDeviceAssignmentRequest& request,
                                     IfrtResponse& response) {
  const auto& devices = context.client.cluster().devices;
  const uint64_t replicas = request.num_replicas(), partitions = request.num_partitions();
  if (replicas == 0 || partitions == 0 || replicas > devices.size() ||
      partitions > devices.size() / replicas) {
    return absl::InvalidArgumentError(absl::StrCat(replicas, " replicas x ", partitions,
                                                   " partitions on a cluster of ", devices.size(),
                                                   " devices"));
  }
  auto& assignment = *response.mutable_default_device_assignment()->mutable_device_assignment();
  assignment.set_replica_count(static_cast<int32_t>(replicas));
  assignment.set_computation_count(static_cast<int32_t>(partitions));
  for (uint64_t partition = 0; partition < partitions; ++partition) {
    auto& computation = *assignment.add_computations();
    for (uint64_t replica = 0; replica < replicas; ++replica) {
      computation.add_replica_device_ids(devices[replica * partitions + partition].id);
    }
  }
  return absl::OkStatus();
}

}  // namespace gangway::ifrt
