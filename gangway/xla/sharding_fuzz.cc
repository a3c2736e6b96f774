// Shardings from a client: each is rejected, or every shard lies inside its array.
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/ifrt_types.pb.h"
#include "gangway/xla/sharding.h"

// The input is an IfrtHloShardingProto: the sharding and its devices.
namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  xla::IfrtHloShardingProto iota;
  for (int i = 0; i < 4; ++i) iota.mutable_devices()->add_device_ids(i);
  auto& sharding = *iota.mutable_op_sharding();
  sharding.set_type(xla::OpShardingProto::TYPE_OTHER);
  sharding.add_tile_assignment_dimensions(2);
  sharding.add_tile_assignment_dimensions(1);
  sharding.add_tile_assignment_dimensions(2);
  sharding.add_iota_reshape_dims(2);
  sharding.add_iota_reshape_dims(2);
  sharding.add_iota_transpose_perm(1);
  sharding.add_iota_transpose_perm(0);
  sharding.set_replicate_on_last_tile_dim(true);
  xla::IfrtHloShardingProto listed = iota;
  listed.mutable_op_sharding()->clear_iota_reshape_dims();
  listed.mutable_op_sharding()->clear_iota_transpose_perm();
  for (int i : {3, 1, 2, 0}) listed.mutable_op_sharding()->add_tile_assignment_devices(i);
  return {iota.SerializeAsString(), listed.SerializeAsString()};
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  return gangway::xla::MutatedMessage<gangway::xla::IfrtHloShardingProto>(
             gangway::fuzz::View(data, size), random)
      .copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::xla::IfrtHloShardingProto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  const int64_t positions = proto.devices().device_ids_size();
  auto sharding = gangway::xla::Sharding::FromProto(proto.op_sharding(), positions);
  if (!sharding.ok()) return 0;
  const std::vector<int64_t> shapes[] = {{}, {12}, {8, 6}, {4, 4, 4}, {INT64_MAX, 2}};
  for (const std::vector<int64_t>& shape : shapes) {
    (void)sharding->GlobalShape(shape);
    for (int64_t position = 0; position < positions; ++position) {
      auto extent = sharding->Extent(position, shape);
      if (!extent.ok()) break;
      for (size_t i = 0; i < shape.size(); ++i) {
        GANGWAY_CHECK(extent->offset[i] >= 0 && extent->shape[i] >= 0 &&
                          extent->shape[i] <= shape[i] &&
                          extent->offset[i] <= shape[i] - extent->shape[i],
                      "a shard lies inside its array");
      }
    }
  }
  return 0;
}
