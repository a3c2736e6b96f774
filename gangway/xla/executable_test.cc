// Tests of executable.h.
#include "gangway/xla/executable.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/xla/hlo_text.pb.h"

namespace gangway::xla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShapeProto Shape(PrimitiveType type, std::vector<int64_t> dims) {
  ShapeProto shape;
  shape.set_element_type(type);
  for (int64_t dim : dims) shape.add_dimensions(dim);
  return shape;
}

OpShardingProto Tiles(std::vector<int64_t> tiles, bool replicate_last) {
  OpShardingProto sharding;
  sharding.set_type(OpShardingProto::TYPE_OTHER);
  int64_t count = 1;
  for (int64_t tile : tiles) {
    sharding.add_tile_assignment_dimensions(tile);
    count *= tile;
  }
  sharding.add_iota_reshape_dims(count);
  sharding.add_iota_transpose_perm(0);
  sharding.set_replicate_on_last_tile_dim(replicate_last);
  return sharding;
}

// step(params f32[8,16] over 2 x 2, batch f32[4] replicated) -> (f32[8,16] over 2 x 2, f32[])
HloModuleWithConfigProto Step() {
  HloModuleWithConfigProto program;
  program.mutable_config()->set_num_partitions(4);
  HloModuleProto& module = *program.mutable_module();
  module.set_name("jit_step");
  ProgramShapeProto& entry = *module.mutable_host_program_shape();
  *entry.add_parameters() = Shape(TYPE_F32, {4, 8});
  *entry.add_parameters() = Shape(TYPE_F32, {4});
  entry.mutable_result()->set_element_type(TYPE_TUPLE);
  *entry.mutable_result()->add_tuple_shapes() = Shape(TYPE_F32, {4, 8});
  *entry.mutable_result()->add_tuple_shapes() = Shape(TYPE_F32, {});
  *module.add_spmd_parameters_shardings() = Tiles({2, 2}, false);
  module.add_spmd_parameters_shardings();
  module.mutable_spmd_output_sharding()->set_type(OpShardingProto::TYPE_TUPLE);
  *module.mutable_spmd_output_sharding()->add_tuple_shardings() = Tiles({2, 1, 2}, true);
  module.mutable_spmd_output_sharding()->add_tuple_shardings();
  module.mutable_input_output_alias()->add_entries()->set_parameter_number(1);
  module.mutable_input_output_alias()->add_entries()->set_parameter_number(0);
  module.mutable_input_output_alias()->add_entries()->set_parameter_number(1);
  return program;
}

TEST(DescribeExecutable, AnotherLayoutThanRowMajorIsRefused) {
  HloModuleWithConfigProto program = Step();
  ProgramShapeProto& entry = *program.mutable_module()->mutable_host_program_shape();
  LayoutProto& layout = *entry.mutable_result()->mutable_tuple_shapes(0)->mutable_layout();
  layout.add_minor_to_major(1);
  layout.add_minor_to_major(0);
  EXPECT_TRUE(DescribeExecutable(program.SerializeAsString()).ok());
  layout.set_minor_to_major(0, 0);
  layout.set_minor_to_major(1, 1);
  const absl::Status refused = DescribeExecutable(program.SerializeAsString()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("output 0: its layout {0,1}"));
}

TEST(DescribeExecutable, ShardedStep) {
  ExecutableDescription description = *DescribeExecutable(Step().SerializeAsString());
  EXPECT_EQ(description.name, "jit_step");
  EXPECT_EQ(description.partition_count, 4);
  ASSERT_EQ(description.parameters.size(), 2u);
  EXPECT_THAT(description.parameters[0].global_dims, ElementsAre(8, 16));
  EXPECT_THAT(description.parameters[1].global_dims, ElementsAre(4));
  EXPECT_TRUE(description.parameters[1].fully_replicated);
  ASSERT_EQ(description.results.size(), 2u);
  EXPECT_THAT(description.results[0].global_dims, ElementsAre(8, 8));
  EXPECT_THAT(description.results[0].shard_dims, ElementsAre(4, 8));
  EXPECT_FALSE(description.results[0].fully_replicated);
  EXPECT_TRUE(description.results[1].global_dims.empty());
  EXPECT_THAT(description.donated, ElementsAre(0, 1));
}

TEST(DescribeExecutable, OneArrayWithoutShardings) {
  HloModuleWithConfigProto program;
  *program.mutable_module()->mutable_host_program_shape()->mutable_result() = Shape(TYPE_BF16, {3});
  ExecutableDescription description = *DescribeExecutable(program.SerializeAsString());
  ASSERT_EQ(description.results.size(), 1u);
  EXPECT_THAT(description.results[0].global_dims, ElementsAre(3));
}

TEST(DescribeExecutable, RefusesWhatDoesNotFit) {
  HloModuleWithConfigProto program = Step();
  program.mutable_config()->set_num_partitions(8);
  EXPECT_EQ(DescribeExecutable(program.SerializeAsString()).status().code(),
            absl::StatusCode::kInvalidArgument);
  program = Step();
  program.mutable_module()->mutable_input_output_alias()->mutable_entries(0)->set_parameter_number(
      2);
  EXPECT_FALSE(DescribeExecutable(program.SerializeAsString()).ok());
  program = Step();
  program.mutable_module()->mutable_spmd_output_sharding()->mutable_tuple_shardings()->RemoveLast();
  EXPECT_FALSE(DescribeExecutable(program.SerializeAsString()).ok());
  EXPECT_FALSE(DescribeExecutable("").ok());
}

TEST(DescribeExecutable, HostileBytesGiveStatus) {
  const std::string good = Step().SerializeAsString();
  for (size_t size = 0; size < good.size(); ++size)
    (void)DescribeExecutable(std::string_view(good).substr(0, size));
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    refused += !DescribeExecutable(bytes).ok();
    (void)ProgramText(bytes);
    (void)ParseInstructions(bytes);
  }
  EXPECT_GT(refused, 1000);
}

TEST(ProgramText, NamesInstructions) {
  HloWithConfigTextProto program;
  program.mutable_module()->set_name("jit_f");
  program.mutable_module()->set_entry_computation_id(7);
  auto& computation = *program.mutable_module()->add_computations();
  computation.set_name("main");
  computation.set_id(7);
  computation.set_root_id(2);
  auto& argument = *computation.add_instructions();
  argument.set_name("x");
  argument.set_id(1);
  argument.set_opcode("parameter");
  *argument.mutable_shape() = Shape(TYPE_F32, {2, 3});
  auto& sum = *computation.add_instructions();
  sum.set_name("sum");
  sum.set_id(2);
  sum.set_opcode("all-reduce");
  sum.add_operand_ids(1);
  sum.add_operand_ids(99);
  *sum.mutable_shape() = Shape(TYPE_F32, {2, 3});
  std::string text = *ProgramText(program.SerializeAsString());
  EXPECT_THAT(text, HasSubstr("ENTRY main {"));
  EXPECT_THAT(text, HasSubstr("  x = f32[2,3] parameter(0)\n"));
  EXPECT_THAT(text, HasSubstr("  ROOT sum = f32[2,3] all-reduce(x, ?)\n"));
}

TEST(HasCollectives, InAnyComputation) {
  HloWithConfigCostProto program;
  auto& entry = *program.mutable_module()->add_computations();
  for (const char* opcode : {"parameter", "while", "dot", "reduce", "gather", "custom-call"})
    entry.add_instructions()->set_opcode(opcode);
  auto& body = *program.mutable_module()->add_computations()->add_instructions();
  body.set_opcode("add");
  EXPECT_FALSE(HasCollectives(program));
  for (const char* opcode :
       {"all-reduce", "all-reduce-start", "all-gather", "reduce-scatter", "all-to-all",
        "collective-permute", "collective-broadcast", "ragged-all-to-all", "send", "recv"}) {
    body.set_opcode(opcode);
    EXPECT_TRUE(HasCollectives(program)) << opcode;
  }
  EXPECT_EQ(ParseInstructions("\xff").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WithParameterLayouts, ChangesTheConfigurationAlone) {
  HloModuleWithConfigProto program;
  program.mutable_module()->set_name("m");
  ProgramShapeProto& shape = *program.mutable_config()->mutable_entry_computation_layout();
  for (int i = 0; i < 2; ++i) {
    LayoutProto& layout = *shape.add_parameters()->mutable_layout();
    layout.add_minor_to_major(1);
    layout.add_minor_to_major(0);
  }
  const std::vector<std::vector<int64_t>> orders = {{}, {0, 1}};
  const auto changed = WithParameterLayouts(program.SerializeAsString(), orders);
  ASSERT_TRUE(changed.ok()) << changed.status();
  auto& order = *shape.mutable_parameters(1)->mutable_layout()->mutable_minor_to_major();
  order.Set(0, 0);
  order.Set(1, 1);
  EXPECT_EQ(*changed, program.SerializeAsString());
  const std::vector<std::vector<int64_t>> too_many(3);
  EXPECT_FALSE(WithParameterLayouts(program.SerializeAsString(), too_many).ok());
  EXPECT_FALSE(WithParameterLayouts("\xff", orders).ok());
}

TEST(CheckNoFeeds, InAnyComputation) {
  HloWithConfigTextProto program;
  program.mutable_module()->add_computations()->add_instructions()->set_opcode("parameter");
  auto& inner = *program.mutable_module()->add_computations()->add_instructions();
  inner.set_opcode("add");
  inner.set_name("infeed.1");
  EXPECT_TRUE(CheckNoFeeds(program.SerializeAsString()).ok());
  for (const char* opcode : {"infeed", "outfeed"}) {
    inner.set_opcode(opcode);
    const absl::Status refused = CheckNoFeeds(program.SerializeAsString());
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << opcode;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("infeed.1"));
  }
  EXPECT_FALSE(CheckNoFeeds("\xffinfeed").ok());
}

}  // namespace
}  // namespace gangway::xla
