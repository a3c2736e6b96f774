// For tests of sharded_calls.h: calls in a module whose shardings are propagated.
#ifndef GANGWAY_COMPILER_SHARDED_CALLS_TEST_UTIL_H_
#define GANGWAY_COMPILER_SHARDED_CALLS_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gangway/collective/lowering/module_test_util.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::compiler {

// Over positions 0, 1, ...: `tiles` per dimension, each on `copies` positions.
inline xla::OpShardingProto Tiled(const std::vector<int64_t>& tiles, int64_t copies = 1) {
  xla::OpShardingProto sharding;
  sharding.set_type(xla::OpShardingProto::TYPE_OTHER);
  sharding.mutable_tile_assignment_dimensions()->Add(tiles.begin(), tiles.end());
  int64_t count = copies;
  for (const int64_t tile : tiles) count *= tile;
  if (copies > 1) {
    sharding.add_tile_assignment_dimensions(copies);
    sharding.set_replicate_on_last_tile_dim(true);
  }
  for (int64_t i = 0; i < count; ++i) sharding.add_tile_assignment_devices(i);
  return sharding;
}

inline xla::OpShardingProto TupleSharding(const std::vector<xla::OpShardingProto>& parts) {
  xla::OpShardingProto sharding;
  sharding.set_type(xla::OpShardingProto::TYPE_TUPLE);
  for (const auto& part : parts) *sharding.add_tuple_shardings() = part;
  return sharding;
}

// A module whose entry calls `target` with one array that lies as `operand`, and uses its results.
inline xla::HloModuleEditProto ModuleWithCall(const std::string& target,
                                              const xla::ShapeProto& array,
                                              const xla::OpShardingProto& operand,
                                              const xla::ShapeProto& result,
                                              const xla::OpShardingProto& sharding,
                                              const std::string& batch_rank = "") {
  collective::ModuleBuilder builder(1, 8);
  builder.Begin("main");
  const int64_t parameter = builder.Parameter(array);
  auto& instructions = *builder.program().mutable_module()->mutable_computations(0);
  *instructions.mutable_instructions(0)->mutable_sharding() = operand;
  auto& call = builder.Add("custom-call", result, {parameter});
  call.set_custom_call_target(target);
  *call.mutable_sharding() = sharding;
  *call.add_operand_shapes_with_layout() = array;
  if (!batch_rank.empty())
    (*call.mutable_frontend_attributes()->mutable_map())["num_batch_dims"] = batch_rank;
  const int64_t id = call.id();
  if (result.element_type() == xla::TYPE_TUPLE && result.tuple_shapes_size() > 0)
    builder.Part(result.tuple_shapes(0), id, 0);
  return builder.program().module();
}

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_SHARDED_CALLS_TEST_UTIL_H_
