// Implementation of array_info.h.
#include "gangway/frontdoor/ifrt/array_info.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/frontdoor/memory_kinds.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/layout.h"
#include "gangway/xla/sharding.h"

namespace gangway::ifrt {
namespace {

constexpr char kSingleDevice[] = "xla::ifrt::SingleDeviceSharding";
constexpr char kHlo[] = "xla::ifrt::HloSharding";
constexpr char kConcreteEven[] = "xla::ifrt::ConcreteEvenSharding";
// Of the forms above, as jaxlib 0.10.2 writes it.
constexpr int kFormVersion = 0;

absl::Status Malformed(std::string_view type) {
  return absl::InvalidArgumentError(absl::StrCat("malformed sharding of type ", std::string(type)));
}

absl::Status ReadDevices(const xla::IfrtDeviceListProto& list, ArrayInfo& info) {
  if (list.device_ids().empty()) return absl::InvalidArgumentError("an array has no devices");
  for (int32_t id : list.device_ids()) info.devices.push_back(static_cast<uint32_t>(id));
  return absl::OkStatus();
}

absl::Status ReadSingleDevice(const std::string& data, ArrayInfo& info) {
  xla::IfrtSingleDeviceShardingProto proto;
  if (!proto.ParseFromString(data)) return Malformed(kSingleDevice);
  info.devices = {static_cast<uint32_t>(proto.device_id())};
  info.memory_kind = MemoryKindFromClient(proto.memory_kind());
  info.shard_dims = info.dims;
  info.fully_replicated = true;
  info.offsets.emplace_back(info.dims.size(), 0);
  return absl::OkStatus();
}

absl::Status ReadHlo(const std::string& data, ArrayInfo& info) {
  xla::IfrtHloShardingProto proto;
  if (!proto.ParseFromString(data)) return Malformed(kHlo);
  GANGWAY_RETURN_IF_ERROR(ReadDevices(proto.devices(), info));
  info.memory_kind = MemoryKindFromClient(proto.memory_kind());
  GANGWAY_ASSIGN_OR_RETURN(
      xla::Sharding sharding,
      xla::Sharding::FromProto(proto.op_sharding(), static_cast<int64_t>(info.devices.size())));
  GANGWAY_ASSIGN_OR_RETURN(info.shard_dims, sharding.ShardShape(info.dims));
  info.fully_replicated = sharding.fully_replicated();
  SetOffsets(sharding, info);
  return absl::OkStatus();
}

absl::Status ReadConcreteEven(const std::string& data, ArrayInfo& info) {
  xla::IfrtConcreteEvenShardingProto proto;
  if (!proto.ParseFromString(data)) return Malformed(kConcreteEven);
  GANGWAY_RETURN_IF_ERROR(ReadDevices(proto.devices(), info));
  info.memory_kind = MemoryKindFromClient(proto.memory_kind());
  info.shard_dims.assign(proto.shard_shape().dims().begin(), proto.shard_shape().dims().end());
  info.fully_replicated = proto.is_fully_replicated();
  if (info.fully_replicated && info.shard_dims != info.dims) {
    return absl::InvalidArgumentError("the shards of a replicated sharding are not whole arrays");
  }
  if (info.fully_replicated)
    info.offsets.assign(info.devices.size(), std::vector<int64_t>(info.dims.size(), 0));
  return absl::OkStatus();
}

absl::Status ReadSharding(const xla::SerializedProto& sharding, ArrayInfo& info) {
  if (sharding.type_name() == kSingleDevice) return ReadSingleDevice(sharding.data(), info);
  if (sharding.type_name() == kHlo) return ReadHlo(sharding.data(), info);
  if (sharding.type_name() == kConcreteEven) return ReadConcreteEven(sharding.data(), info);
  return absl::UnimplementedError(
      absl::StrCat("sharding of type '", sharding.type_name(),
                   "' is not served; use a NamedSharding or a SingleDeviceSharding"));
}

}  // namespace

void SetOffsets(const xla::Sharding& sharding, ArrayInfo& info) {
  info.offsets.clear();
  const bool one_holds_all =
      sharding.kind() == xla::Sharding::Kind::kMaximal && sharding.position_count() > 1;
  if (sharding.kind() == xla::Sharding::Kind::kManual || one_holds_all) return;
  for (size_t i = 0; i < info.devices.size(); ++i) {
    auto extent = sharding.Extent(static_cast<int64_t>(i), info.dims);
    if (!extent.ok()) return info.offsets.clear();
    info.offsets.push_back(std::move(extent->offset));
  }
}

absl::StatusOr<ArrayInfoRef> ReadArrayInfo(const xla::IfrtDTypeProto& dtype,
                                           const xla::IfrtShapeProto& shape,
                                           const xla::IfrtShardingProto& sharding,
                                           const DeviceSet& known) {
  auto info = std::make_shared<ArrayInfo>();
  GANGWAY_ASSIGN_OR_RETURN(xla::PrimitiveType element_type, xla::FromIfrt(dtype.kind()));
  info->element_type = element_type;
  info->dims.assign(shape.dims().begin(), shape.dims().end());
  GANGWAY_RETURN_IF_ERROR(xla::ElementCount(info->dims));
  GANGWAY_RETURN_IF_ERROR(ReadSharding(sharding.serialized(), *info));
  for (uint32_t device : info->devices) {
    if (!known.contains(device)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device, " is not one of the cluster's"));
    }
  }
  GANGWAY_ASSIGN_OR_RETURN(int64_t bytes, xla::DenseBytes(info->element_type, info->shard_dims));
  info->shard_bytes = static_cast<uint64_t>(bytes);
  return info;
}

absl::StatusOr<ArrayInfoRef> ReadArrayInfo(const xla::IfrtArraySpecProto& spec,
                                           const DeviceSet& known) {
  GANGWAY_RETURN_IF_ERROR(
      xla::CheckRowMajor(spec.layout(), static_cast<size_t>(spec.shape().dims_size())),
      "an array to make");
  return ReadArrayInfo(spec.dtype(), spec.shape(), spec.sharding(), known);
}

absl::StatusOr<xla::IfrtShardingProto> WriteSharding(const ArrayInfo& info) {
  xla::IfrtShardingProto sharding;
  xla::SerializedProto& serialized = *sharding.mutable_serialized();
  if (info.devices.size() == 1) {
    xla::IfrtSingleDeviceShardingProto proto;
    proto.set_device_id(static_cast<int32_t>(info.devices[0]));
    proto.set_memory_kind(MemoryKindForClient(info.memory_kind));
    proto.set_version(kFormVersion);
    serialized.set_type_name(kSingleDevice);
    serialized.set_data(proto.SerializeAsString());
    return sharding;
  }
  if (info.hlo_sharding != nullptr) {
    xla::IfrtHloShardingProto proto;
    for (uint32_t device : info.devices)
      proto.mutable_devices()->add_device_ids(static_cast<int32_t>(device));
    *proto.mutable_op_sharding() = *info.hlo_sharding;
    proto.set_memory_kind(MemoryKindForClient(info.memory_kind));
    proto.set_version(kFormVersion);
    serialized.set_type_name(kHlo);
    serialized.set_data(proto.SerializeAsString());
    return sharding;
  }
  xla::IfrtConcreteEvenShardingProto proto;
  for (uint32_t device : info.devices)
    proto.mutable_devices()->add_device_ids(static_cast<int32_t>(device));
  proto.mutable_shape()->mutable_dims()->Add(info.dims.begin(), info.dims.end());
  proto.mutable_shard_shape()->mutable_dims()->Add(info.shard_dims.begin(), info.shard_dims.end());
  proto.set_memory_kind(MemoryKindForClient(info.memory_kind));
  proto.set_is_fully_replicated(info.fully_replicated);
  proto.set_version(kFormVersion);
  serialized.set_type_name(kConcreteEven);
  serialized.set_data(proto.SerializeAsString());
  return sharding;
}

ArrayInfoRef ShardInfo(const ArrayInfo& info, size_t shard) {
  auto result = std::make_shared<ArrayInfo>(info);
  result->dims = info.shard_dims;
  result->devices = {info.devices[shard]};
  result->fully_replicated = true;
  result->hlo_sharding = nullptr;
  result->offsets.assign(1, std::vector<int64_t>(info.shard_dims.size(), 0));
  return result;
}

ArraySpec ToSpec(const ArrayInfo& info) {
  return ArraySpec{info.element_type, info.shard_dims, info.devices, info.memory_kind,
                   info.shard_bytes};
}

}  // namespace gangway::ifrt
