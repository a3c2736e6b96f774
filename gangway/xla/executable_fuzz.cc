// The optimized HLO of a plugin: any bytes are described or rejected, and a description is
// consistent.
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/xla/cost_analysis.h"
#include "gangway/xla/executable.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo_cost.pb.h"
#include "gangway/xla/hlo_edit.pb.h"
#include "gangway/xla/hlo_text.pb.h"
#include "gangway/xla/large_literals.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  xla::HloModuleWithConfigProto split;
  split.mutable_config()->set_num_partitions(4);
  xla::HloModuleProto& module = *split.mutable_module();
  module.set_name("jit_f");
  auto array = [](xla::ShapeProto& shape) {
    shape.set_element_type(xla::TYPE_F32);
    shape.add_dimensions(8);
    shape.add_dimensions(2);
  };
  array(*module.mutable_host_program_shape()->add_parameters());
  xla::ShapeProto& result = *module.mutable_host_program_shape()->mutable_result();
  result.set_element_type(xla::TYPE_TUPLE);
  array(*result.add_tuple_shapes());
  xla::OpShardingProto& sharding = *module.add_spmd_parameters_shardings();
  sharding.set_type(xla::OpShardingProto::TYPE_OTHER);
  sharding.add_tile_assignment_dimensions(2);
  sharding.add_tile_assignment_dimensions(2);
  for (int i = 0; i < 4; ++i) sharding.add_tile_assignment_devices(i);
  *module.mutable_spmd_output_sharding()->add_tuple_shardings() = sharding;
  module.mutable_spmd_output_sharding()->set_type(xla::OpShardingProto::TYPE_TUPLE);
  module.mutable_input_output_alias()->add_entries();
  module.mutable_stack_frame_index()->add_file_names("train.py");
  module.mutable_stack_frame_index()->add_function_names("f");
  auto& location = *module.mutable_stack_frame_index()->add_file_locations();
  location.set_file_name_id(1);
  location.set_function_name_id(1);
  location.set_line(42);
  module.mutable_stack_frame_index()->add_stack_frames()->set_file_location_id(1);

  xla::HloWithConfigTextProto text;
  auto& computation = *text.mutable_module()->add_computations();
  computation.set_name("main");
  auto& parameter = *computation.add_instructions();
  parameter.set_id(1);
  parameter.set_opcode("parameter");
  auto& call = *computation.add_instructions();
  call.set_opcode("custom-call");
  call.set_custom_call_target("f");
  call.add_operand_ids(1);

  xla::HloWithConfigCostProto costs;
  auto& counted = *costs.mutable_module()->add_computations();
  array(*counted.add_instructions()->mutable_shape());
  auto& convolution = *counted.add_instructions();
  convolution.set_opcode("convolution");
  convolution.set_id(1);
  convolution.add_operand_ids(0);
  convolution.mutable_window()->add_dimensions()->set_size(2);
  convolution.mutable_convolution_dimension_numbers()->add_input_spatial_dimensions(0);
  convolution.mutable_convolution_dimension_numbers()->add_output_spatial_dimensions(0);

  xla::HloWithConfigEditProto edit;
  auto& constants = *edit.mutable_module()->add_computations();
  for (int values : {1, 100}) {
    auto& constant = *constants.add_instructions();
    constant.set_opcode("constant");
    for (int i = 0; i < values; ++i) constant.mutable_literal()->add_s32s(i);
  }
  return {split.SerializeAsString(), text.SerializeAsString(), costs.SerializeAsString(),
          edit.SerializeAsString()};
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string_view bytes = gangway::fuzz::View(data, size);
  std::string mutated;
  switch (random() % 4) {
    case 0:
      mutated = gangway::xla::MutatedMessage<gangway::xla::HloModuleWithConfigProto>(bytes, random);
      break;
    case 1:
      mutated = gangway::xla::MutatedMessage<gangway::xla::HloWithConfigTextProto>(bytes, random);
      break;
    case 2:
      mutated = gangway::xla::MutatedMessage<gangway::xla::HloWithConfigCostProto>(bytes, random);
      break;
    default:
      mutated = gangway::xla::MutatedMessage<gangway::xla::HloWithConfigEditProto>(bytes, random);
  }
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = gangway::fuzz::View(data, size);
  (void)gangway::xla::ProgramText(bytes);
  if (const auto program = gangway::xla::ParseInstructions(bytes); program.ok()) {
    const auto costs = gangway::xla::AnalyzeCosts(*program);
    GANGWAY_CHECK(!costs.ok() || (costs->flops >= 0 && costs->bytes_accessed >= 0),
                  "costs are not negative");
  }
  const std::string shortened = gangway::xla::WithoutLargeLiterals(std::string(bytes), 8);
  GANGWAY_CHECK(shortened.size() <= bytes.size(), "it only leaves out");
  GANGWAY_CHECK(gangway::xla::WithoutLargeLiterals(shortened, 8) == shortened, "at once");
  auto description = gangway::xla::DescribeExecutable(bytes);
  if (!description.ok()) return 0;
  GANGWAY_CHECK(description->partition_count >= 1 && description->replica_count >= 1,
                "a program has a device");
  for (int32_t index : description->donated) {
    GANGWAY_CHECK(index >= 0 && index < static_cast<int32_t>(description->parameters.size()),
                  "donated indices are parameters");
  }
  for (const auto& operand : description->parameters) {
    GANGWAY_CHECK(operand.global_dims.size() == operand.shard_dims.size(), "ranks agree");
  }
  return 0;
}
