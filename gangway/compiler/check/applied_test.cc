// Computations that are applied to elements: reductions of collectives, and notes on how values are sharded.
#include "gangway/compiler/check/applied.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"

#include "gangway/compiler/check/check_test_util.h"
#include "gangway/compiler/check/corpus.h"

namespace gangway::compiler {
namespace {

constexpr Positions kFour{.replicas = 1, .partitions = 4};

hlo::Shape Bf16(const Dims& dims) { return Array(xla::TYPE_BF16, dims); }

void Annotate(hlo::Computation& computation, const hlo::Shape& shape, int64_t of) {
  AddTo(computation, "custom-call", shape, {of}).set_custom_call_target("Sharding");
}

// As JAX writes the reduction of a psum in a shard_map over some axes of its mesh.
hlo::Computation AnnotatedAdder(int type) {
  hlo::Computation adder = Adder(type);
  Annotate(adder, Array(type, {}), 3);
  return adder;
}

hlo::Module Reducing(const std::string& opcode, const hlo::Computation& by, const hlo::Shape& from,
                     const hlo::Shape& to) {
  return OneOp(opcode, to, {from},
               [](hlo::Instruction& each) {
                 each.set_channel_id(1);
                 each.set_use_global_device_ids(true);
                 Fill(each.add_replica_groups()->mutable_replica_ids(), {0, 1, 2, 3});
                 if (each.opcode() == "reduce-scatter") Fill(each.mutable_dimensions(), {0});
               },
               {by});
}

absl::Status AllReduce(const hlo::Computation& by, const hlo::Shape& array = Bf16({8})) {
  const absl::Status whole = Check(Reducing("all-reduce", by, array, array), kFour).status();
  hlo::Shape part = array;
  part.set_dimensions(0, array.dimensions(0) / 4);
  EXPECT_EQ(whole.ok(), Check(Reducing("reduce-scatter", by, array, part), kFour).ok());
  return whole;
}

int Annotations(const hlo::Module& module) {
  int count = 0;
  for (const auto& computation : module.computations())
    count += static_cast<int>(std::ranges::count_if(computation.instructions(), IsAnnotation));
  return count;
}

// The module as XLA gets it.
hlo::Module Changed(const hlo::Module& module, Positions positions = {}) {
  const auto checked = Check(module, positions);
  EXPECT_TRUE(checked.ok()) << checked.status();
  EXPECT_TRUE(checked.ok() && checked->has_applied_annotations);
  hlo::Module changed;
  const auto bytes = WithChanges(module.SerializeAsString(), *checked);
  EXPECT_TRUE(bytes.ok() && changed.ParseFromString(*bytes)) << bytes.status();
  const auto again = Check(changed, positions);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again.ok() && again->wants_changes());
  return changed;
}

// XLA ends its process over the refused ones, if the elements are of bf16.
TEST(AppliedComputationsTest, CollectivesReduceByOneOperation) {
  for (const char* opcode : {"add", "multiply", "minimum", "maximum"}) {
    const auto taken = AllReduce(OneCall(opcode, Bf16({}), {Bf16({}), Bf16({})}));
    EXPECT_TRUE(taken.ok()) << opcode << ": " << taken;
  }
  for (const char* opcode : {"and", "or"}) {
    const auto taken = AllReduce(OneCall(opcode, Pred({}), {Pred({}), Pred({})}), Pred({8}));
    EXPECT_TRUE(taken.ok()) << opcode << ": " << taken;
  }
  hlo::Computation left = Named("called", {Bf16({}), Bf16({})});
  left.set_root_id(1);
  *left.mutable_program_shape()->mutable_result() = Bf16({});
  hlo::Computation negated = Adder(xla::TYPE_BF16);
  AddTo(negated, "negate", Bf16({}), {3});
  hlo::Computation twice = Adder(xla::TYPE_BF16);
  twice.mutable_instructions(2)->set_operand_ids(1, 1);
  hlo::Computation more = Named("called", {Bf16({}), Bf16({})});
  AddTo(more, "negate", Bf16({}), {1});
  AddTo(more, "add", Bf16({}), {3, 2});
  const auto subtract = OneCall("subtract", Bf16({}), {Bf16({}), Bf16({})});
  for (const hlo::Computation& by : {left, negated, twice, more, subtract}) {
    const auto refused = AllReduce(by);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << by.DebugString();
    EXPECT_TRUE(absl::StrContains(refused.message(), "its reduction is not one")) << refused;
  }
}

TEST(AppliedComputationsTest, AnnotationsOfReductionsAreRemoved) {
  const auto bf16 = xla::TYPE_BF16;
  hlo::Computation each = Named("called", {Bf16({}), Bf16({})});  // parameters 1 and 2
  Annotate(each, Bf16({}), 2);
  Annotate(each, Bf16({}), 3);
  AddTo(each, "add", Bf16({}), {1, 4}).add_control_predecessor_ids(3);
  Annotate(each, Bf16({}), 5);
  for (const hlo::Computation& by : {AnnotatedAdder(bf16), each}) {
    EXPECT_TRUE(AllReduce(by).ok()) << AllReduce(by);
    const auto changed = Changed(Reducing("all-reduce", by, Bf16({8}), Bf16({8})), kFour);
    const auto& reducer = changed.computations(0);
    ASSERT_EQ(reducer.instructions_size(), 3) << reducer.DebugString();
    const auto& root = reducer.instructions(2);
    EXPECT_EQ(root.opcode(), "add");
    EXPECT_EQ(reducer.root_id(), root.id());
    EXPECT_EQ(root.operand_ids(0), 1);
    EXPECT_EQ(root.operand_ids(1), 2);
  }
}

// XLA makes collectives of other reductions, too, where it partitions them.
TEST(AppliedComputationsTest, AnnotationsAreRemovedWhereverElementsAreMeant) {
  const auto along = [](hlo::Instruction& each) { Fill(each.mutable_dimensions(), {0}); };
  const auto bf16 = xla::TYPE_BF16;
  const auto reduce =
      OneOp("reduce", Bf16({}), {Bf16({8}), Bf16({})}, along, {AnnotatedAdder(bf16)});
  EXPECT_EQ(Annotations(Changed(reduce)), 0);
  hlo::Computation order = Comparing("LT", "TOTALORDER");
  Annotate(order, Pred({}), 3);
  EXPECT_EQ(Annotations(Changed(OneOp("sort", F32({8}), {F32({8})}, along, {order}))), 0);

  // What a reduction calls.
  hlo::Module nested;
  nested.set_name("module");
  (*nested.add_computations() = AnnotatedAdder(bf16)).set_id(1);
  hlo::Computation outer = Named("outer", {Bf16({}), Bf16({})});
  outer.set_id(2);
  AddTo(outer, "call", Bf16({}), {1, 2}).add_called_computation_ids(1);
  *nested.add_computations() = outer;
  hlo::Computation entry = Named("entry", {Bf16({8}), Bf16({})});
  hlo::Instruction& root = AddTo(entry, "reduce", Bf16({}), {1, 2});
  root.add_called_computation_ids(2);
  along(root);
  Close(nested, entry);
  EXPECT_EQ(Annotations(Changed(nested)), 0);
}

TEST(AppliedComputationsTest, AnnotationsOfCallsStay) {
  const auto module =
      OneOp("call", F32({}), {F32({}), F32({})}, {}, {AnnotatedAdder(xla::TYPE_F32)});
  const auto checked = Check(module);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_FALSE(checked->wants_changes());
}

TEST(AppliedComputationsTest, CustomCallsApplyOnlyWhatIsForElements) {
  const auto top = [](const hlo::Computation& order) {
    return OneOp("custom-call", TupleOf({F32({2}), S32({2})}), {F32({8})},
                 [](hlo::Instruction& each) { each.set_custom_call_target("TopK"); }, {order});
  };
  EXPECT_TRUE(Check(top(Comparing("GT", "TOTALORDER"))).ok());
  const auto calls = OneCall("custom-call", Pred({}), {F32({}), F32({})});
  const auto refused = Check(top(calls)).status();
  EXPECT_TRUE(absl::StrContains(refused.message(), "more than compute with elements")) << refused;
}

// As jax._src.cudnn.cudnn_fusion makes it.
TEST(AppliedComputationsTest, AFusionOfCudnnComputesWithArrays) {
  hlo::Computation product =
      OneCall("dot", F32({2, 5}), {F32({2, 4}), F32({4, 5})}, [](hlo::Instruction& dot) {
        dot.mutable_dot_dimension_numbers()->add_lhs_contracting_dimensions(1);
        dot.mutable_dot_dimension_numbers()->add_rhs_contracting_dimensions(0);
      });
  const auto fusion = OneOp(
      "custom-call", F32({2, 5}), {F32({2, 4}), F32({4, 5})},
      [](hlo::Instruction& each) { each.set_custom_call_target("__cudnn$fusion"); }, {product});
  EXPECT_TRUE(Check(fusion).ok()) << Check(fusion).status();
}

TEST(AppliedComputationsTest, WhatJaxLowersKeepsItsProgram) {
  int annotated = 0;
  for (const std::string& bytes : Corpus()) {
    hlo::Module module;
    ASSERT_TRUE(module.ParseFromString(bytes));
    const auto& devices = module.device_assignment();
    const Positions positions{.replicas = devices.replica_count(),
                              .partitions = devices.computation_count()};
    const auto checked = Check(module, positions);
    ASSERT_TRUE(checked.ok()) << checked.status();
    if (!checked->has_applied_annotations) continue;
    ++annotated;
    EXPECT_EQ(Annotations(Changed(module, positions)), Annotations(module) - 1);
  }
  EXPECT_GE(annotated, 1) << "JAX no longer annotates a reduction";
}

}  // namespace
}  // namespace gangway::compiler
