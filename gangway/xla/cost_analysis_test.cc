// Tests of cost_analysis.h. That the counts are those of XLA itself, which counts in older versions of its CPU plugin:
// device/pjrt/pjrt_costs_test.cc.
#include "gangway/xla/cost_analysis.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/xla/hlo_cost.pb.h"

namespace gangway::xla {
namespace {

using ::testing::HasSubstr;

// A module of one computation, unless more are added: ids count from 1 in each.
class Module {
 public:
  HloComputationCostProto& Computation() {
    HloComputationCostProto& computation = *module().add_computations();
    computation.set_id(module().computations_size());
    module().set_entry_computation_id(computation.id());
    return computation;
  }

  static HloInstructionCostProto& Add(HloComputationCostProto& computation,
                                      const std::string& opcode, const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& operands = {}) {
    HloInstructionCostProto& instruction = *computation.add_instructions();
    instruction.set_id(computation.instructions_size());
    instruction.set_opcode(opcode);
    instruction.mutable_shape()->set_element_type(TYPE_F32);
    for (int64_t each : dims) instruction.mutable_shape()->add_dimensions(each);
    for (int64_t each : operands) instruction.add_operand_ids(each);
    computation.set_root_id(instruction.id());
    return instruction;
  }

  absl::StatusOr<ProgramCosts> Costs() const { return AnalyzeCosts(program_); }
  HloModuleCostProto& module() { return *program_.mutable_module(); }

 private:
  HloWithConfigCostProto program_;
};

TEST(CostAnalysis, AFusionAccessesWhatItReadsAndWritesNotWhatPassesInside) {
  Module module;
  HloComputationCostProto& fused = module.Computation();
  Module::Add(fused, "parameter", {1000});
  Module::Add(fused, "dynamic-slice", {10}, {1});
  Module::Add(fused, "exponential", {10}, {2});
  Module::Add(fused, "negate", {10}, {3});
  HloComputationCostProto& entry = module.Computation();
  Module::Add(entry, "parameter", {1000});
  Module::Add(entry, "fusion", {10}, {1}).add_called_computation_ids(fused.id());
  const auto costs = module.Costs();
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->flops, 10);
  EXPECT_EQ(costs->transcendentals, 10);
  EXPECT_EQ(costs->bytes_accessed, 40 + 40);
}

TEST(CostAnalysis, ALoopCountsOnceAndAConditionalAsItsDearestBranch) {
  for (const std::string opcode : {"while", "conditional"}) {
    Module module;
    for (int64_t size : {3, 50}) {
      HloComputationCostProto& called = module.Computation();
      Module::Add(called, "parameter", {size});
      Module::Add(called, "add", {size}, {1, 1});
    }
    HloComputationCostProto& entry = module.Computation();
    Module::Add(entry, "parameter", {50});
    HloInstructionCostProto& call = Module::Add(entry, opcode, {50}, {1});
    call.add_called_computation_ids(1);
    call.add_called_computation_ids(2);
    const auto costs = module.Costs();
    ASSERT_TRUE(costs.ok()) << costs.status();
    EXPECT_EQ(costs->flops, opcode == "while" ? 53 : 50) << opcode;
  }
}

TEST(CostAnalysis, SizesWhoseProductWrapsAreLargeNotNegative) {
  Module module;
  HloComputationCostProto& entry = module.Computation();
  Module::Add(entry, "parameter", {int64_t{1} << 62, int64_t{1} << 62});
  Module::Add(entry, "add", {int64_t{1} << 62, int64_t{1} << 62}, {1, 1});
  HloInstructionCostProto& pooled = Module::Add(entry, "reduce-window", {1000}, {1});
  WindowDimensionProto& window = *pooled.mutable_window()->add_dimensions();
  window.set_size(std::numeric_limits<int64_t>::min());
  const auto costs = module.Costs();
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->flops, std::pow(2.0, 124));
}

TEST(CostAnalysis, AWindowOfAnySizeIsCountedAtOnce) {
  Module module;
  HloComputationCostProto& entry = module.Computation();
  Module::Add(entry, "parameter", {1, 1, 8});
  Module::Add(entry, "parameter", {1, 1, 3});
  HloInstructionCostProto& convolution = Module::Add(entry, "convolution", {1, 1, 8}, {1, 2});
  ConvolutionDimensionsProto& numbers = *convolution.mutable_convolution_dimension_numbers();
  numbers.add_input_spatial_dimensions(2);
  numbers.add_output_spatial_dimensions(2);
  WindowDimensionProto& window = *convolution.mutable_window()->add_dimensions();
  const int64_t largest = std::numeric_limits<int64_t>::max();
  for (int64_t size : {int64_t{3}, largest}) {
    for (int64_t padding : {int64_t{1}, largest, -largest}) {
      for (int64_t stride : {int64_t{0}, int64_t{1}, largest, -largest}) {
        window.set_size(size);
        window.set_padding_low(padding);
        window.set_stride(stride);
        window.set_window_dilation(stride);
        window.set_base_dilation(stride);
        const auto costs = module.Costs();
        ASSERT_TRUE(costs.ok()) << costs.status();
        EXPECT_GE(costs->flops, 0);
        if (size == 3 && padding == 1 && stride == 1) {
          EXPECT_EQ(costs->flops, 2 * 22) << "of 24 pairs, two are padding";
        }
      }
    }
  }
}

TEST(CostAnalysis, MalformedProgramsAreRefused) {
  EXPECT_THAT(std::string(AnalyzeCosts({}).status().message()), HasSubstr("entry"));
  Module forward;
  HloComputationCostProto& entry = forward.Computation();
  Module::Add(entry, "add", {1}, {2});
  Module::Add(entry, "parameter", {1});
  EXPECT_THAT(std::string(forward.Costs().status().message()), HasSubstr("operand"));
  Module itself;
  Module::Add(itself.Computation(), "call", {1}).add_called_computation_ids(1);
  EXPECT_THAT(std::string(itself.Costs().status().message()), HasSubstr("call"));
  Module rootless;
  Module::Add(rootless.Computation(), "parameter", {1});
  rootless.module().mutable_computations(0)->set_root_id(7);
  EXPECT_THAT(std::string(rootless.Costs().status().message()), HasSubstr("root"));
}

}  // namespace
}  // namespace gangway::xla
