// Calls that are cut by hand: which, how they lie, what stays, and what is refused. That XLA takes the output is tested
// end to end (tests/test_linalg_batches.py, tests/test_partitioning.py).
#include "gangway/compiler/sharded_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "gangway/compiler/sharded_calls_test_util.h"
#include "gangway/xla/sharded_calls.h"

namespace gangway::compiler {
namespace {

using collective::F32;
using collective::TupleOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using xla::HloInstructionEditProto;
using xla::HloModuleEditProto;
using xla::OpShardingProto;

const xla::ShapeProto kMatrices = F32({16, 4, 4});
const xla::ShapeProto kResults = TupleOf({F32({16, 4, 4}), F32({16})});

HloModuleEditProto Batch(const OpShardingProto& operand, const OpShardingProto& matrices,
                         const OpShardingProto& codes) {
  return ModuleWithCall("lapack_spotrf_ffi", kMatrices, operand, kResults,
                        TupleSharding({matrices, codes}), "1");
}

std::vector<int64_t> Dims(const xla::ShapeProto& shape) {
  return {shape.dimensions().begin(), shape.dimensions().end()};
}

const HloInstructionEditProto& Find(const HloModuleEditProto& module, int64_t id) {
  for (const auto& computation : module.computations())
    for (const auto& instruction : computation.instructions())
      if (instruction.id() == id) return instruction;
  ADD_FAILURE() << "no instruction " << id;
  return HloInstructionEditProto::default_instance();
}

// The first of the module's calls of `target`.
const HloInstructionEditProto& Call(const HloModuleEditProto& module, std::string_view target) {
  for (const auto& computation : module.computations())
    for (const auto& instruction : computation.instructions())
      if (instruction.custom_call_target() == target) return instruction;
  ADD_FAILURE() << "no call of " << target;
  return HloInstructionEditProto::default_instance();
}

// Names and ids are each other's own, and operands come first.
void ExpectConsistent(const HloModuleEditProto& module) {
  std::set<std::string> names;
  std::set<int64_t> computations;
  for (const auto& computation : module.computations()) {
    EXPECT_TRUE(names.insert(computation.name()).second) << computation.name();
    std::set<int64_t> ids;
    for (const auto& instruction : computation.instructions()) {
      EXPECT_TRUE(names.insert(instruction.name()).second) << instruction.name();
      for (const int64_t operand : instruction.operand_ids())
        EXPECT_TRUE(ids.contains(operand)) << instruction.name();
      for (const int64_t callee : instruction.called_computation_ids())
        EXPECT_TRUE(computations.contains(callee)) << instruction.name();
      EXPECT_TRUE(ids.insert(instruction.id()).second) << instruction.name();
    }
    EXPECT_TRUE(ids.contains(computation.root_id())) << computation.name();
    EXPECT_TRUE(computations.insert(computation.id()).second) << computation.name();
  }
}

TEST(ShardedCallsTest, ABatchCallTakesAndYieldsShards) {
  HloModuleEditProto module = Batch(Tiled({4, 1, 1}, 2), Tiled({4, 1, 1}, 2), Tiled({4}, 2));
  const auto cut = Cut(module, 8, {});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->cut, 1);
  ExpectConsistent(module);
  const auto& call = Call(module, "lapack_spotrf_ffi");
  EXPECT_THAT(Dims(call.shape().tuple_shapes(0)), ElementsAre(4, 4, 4));
  EXPECT_THAT(Dims(call.shape().tuple_shapes(1)), ElementsAre(4));
  EXPECT_THAT(Dims(call.operand_shapes_with_layout(0)), ElementsAre(4, 4, 4));
  EXPECT_THAT(call.frontend_attributes().map(), IsEmpty());
  for (const auto& sharding : call.sharding().tuple_shardings())
    EXPECT_EQ(sharding.type(), OpShardingProto::TYPE_MANUAL);
  const auto& shard = Find(module, call.operand_ids(0));
  EXPECT_EQ(shard.custom_call_target(), "SPMDFullToShardShape");
  EXPECT_THAT(Dims(shard.shape()), ElementsAre(4, 4, 4));
  const auto& placed = Find(module, shard.operand_ids(0));
  EXPECT_EQ(placed.custom_call_target(), "Sharding");
  EXPECT_EQ(placed.sharding().SerializeAsString(), Tiled({4, 1, 1}, 2).SerializeAsString());
  // Users of the call find whole arrays under its id.
  const auto& used = module.computations(0).instructions().rbegin()->operand_ids(0);
  const auto& whole = Find(module, used);
  EXPECT_EQ(whole.opcode(), "tuple");
  EXPECT_EQ(whole.shape().SerializeAsString(), kResults.SerializeAsString());
  EXPECT_EQ(Find(module, whole.operand_ids(1)).custom_call_target(), "SPMDShardToFullShape");
}

TEST(ShardedCallsTest, WhatIsCutAlongOtherDimensionsIsGatheredThere) {
  HloModuleEditProto module = Batch(Tiled({4, 2, 1}), {}, {});
  ASSERT_EQ(Cut(module, 8, {})->cut, 1);
  const auto& call = Call(module, "lapack_spotrf_ffi");
  const auto& placed = Find(module, Find(module, call.operand_ids(0)).operand_ids(0));
  // The two that shared a part of the batch have all of it.
  EXPECT_EQ(placed.sharding().SerializeAsString(), Tiled({4, 1, 1}, 2).SerializeAsString());
}

TEST(ShardedCallsTest, WhatCannotBeCutStaysAsItIs) {
  OpShardingProto manual;
  manual.set_type(OpShardingProto::TYPE_MANUAL);
  OpShardingProto partly = Tiled({4, 1, 1}, 2);
  partly.clear_replicate_on_last_tile_dim();
  partly.add_last_tile_dims(OpShardingProto::TYPE_MANUAL);
  const OpShardingProto cut = Tiled({8, 1, 1});
  const auto with = [&](const std::string& target, const std::string& rank,
                        xla::ShapeProto array = kMatrices,
                        OpShardingProto sharding = Tiled({8, 1, 1})) {
    return ModuleWithCall(target, array, sharding, array, sharding, rank);
  };
  const std::pair<const char*, HloModuleEditProto> modules[] = {
      {"nothing is cut", Batch({}, {}, {})},
      {"only rows are", Batch(Tiled({1, 8, 1}), {}, {})},
      {"not evenly", with("lapack_spotrf_ffi", "1", F32({12, 4, 4}))},
      {"it has shards", Batch(manual, manual, manual)},
      {"along an axis", Batch(partly, partly, partly)},
      {"no batch", with("lapack_spotrf_ffi", "")},
      {"none of 0", with("lapack_spotrf_ffi", "0")},
      {"not a number", with("lapack_spotrf_ffi", "x")},
      {"below 0", with("lapack_spotrf_ffi", "-1")},
      {"more than it has", with("lapack_spotrf_ffi", "4")},
      {"a script's own function", with("mine", "1")},
  };
  for (const auto& [what, before] : modules) {
    HloModuleEditProto module = before;
    const auto result = Cut(module, 8, {});
    ASSERT_TRUE(result.ok()) << what << result.status();
    EXPECT_EQ(result->cut, 0) << what;
    EXPECT_EQ(module.SerializeAsString(), before.SerializeAsString()) << what;
  }
  HloModuleEditProto one = with("lapack_spotrf_ffi", "1");
  EXPECT_EQ(Cut(one, 8, {})->cut, 1) << "the others differ from this in what their names say";
}

TEST(ShardedCallsTest, ALocalCallGetsTheDimensionsOfItsShards) {
  HloModuleEditProto module = ModuleWithCall("xla_ffi_partitioned_python_cpu_callback", kMatrices,
                                             Tiled({4, 2, 1}), TupleOf({}), OpShardingProto());
  ASSERT_EQ(Cut(module, 8, {})->cut, 1);
  ExpectConsistent(module);
  const auto& call = Call(module, "xla_ffi_partitioned_python_cpu_callback");
  ASSERT_EQ(call.operand_ids_size(), 2);
  ASSERT_EQ(call.operand_shapes_with_layout_size(), 2);
  EXPECT_THAT(Find(module, call.operand_ids(1)).literal().s32s(), ElementsAre(3, 4, 2, 4));
}

TEST(ShardedCallsTest, ALocalCallTakesWholeWhatIsNotCutEvenlyOrOnOnePosition) {
  OpShardingProto maximal;
  maximal.set_type(OpShardingProto::TYPE_MAXIMAL);
  maximal.add_tile_assignment_devices(0);
  for (const OpShardingProto& sharding : {Tiled({1, 8, 1}), maximal}) {
    HloModuleEditProto module = ModuleWithCall("xla_ffi_partitioned_python_cpu_callback", kMatrices,
                                               sharding, TupleOf({}), OpShardingProto());
    ASSERT_EQ(Cut(module, 8, {})->cut, 1);
    const auto& call = Call(module, "xla_ffi_partitioned_python_cpu_callback");
    EXPECT_THAT(Dims(Find(module, call.operand_ids(0)).shape()), ElementsAre(16, 4, 4));
  }
}

TEST(ShardedCallsTest, ALocalCallWithoutOperandsGetsNone) {
  HloModuleEditProto module = ModuleWithCall("xla_ffi_partitioned_python_cpu_callback", kMatrices,
                                             Tiled({8, 1, 1}), TupleOf({}), OpShardingProto());
  auto& call = *module.mutable_computations(0)->mutable_instructions(1);
  call.clear_operand_ids();
  call.clear_operand_shapes_with_layout();
  ASSERT_EQ(Cut(module, 8, {})->cut, 1);
  EXPECT_EQ(Call(module, "xla_ffi_partitioned_python_cpu_callback").operand_ids_size(), 0);
}

// XLA's older propagation gives an empty tuple a sharding.
TEST(ShardedCallsTest, ABatchCallWithoutResultsIsCutAsItsOperands) {
  HloModuleEditProto module = ModuleWithCall("lapack_none", kMatrices, Tiled({8, 1, 1}),
                                             TupleOf({}), Tiled({8, 1, 1}), "1");
  ASSERT_EQ(Cut(module, 8, {})->cut, 1);
  EXPECT_THAT(Dims(Find(module, Call(module, "lapack_none").operand_ids(0)).shape()),
              ElementsAre(2, 4, 4));
}

// What one position does: it negates, and sums over the positions.
HloModuleEditProto Body(const xla::ShapeProto& shape) {
  collective::ModuleBuilder builder(1, 8);
  const int64_t sum = builder.Reducer("add");
  builder.Begin("main");
  auto& reduce = builder.Add("all-reduce", shape, {builder.Parameter(shape)}, {sum});
  reduce.set_channel_id(3);
  builder.Add("negate", shape, {reduce.id()});
  HloModuleEditProto module = builder.program().module();
  for (auto& computation : *module.mutable_computations())
    for (auto& each : *computation.mutable_instructions())
      each.set_name(absl::StrCat(computation.name(), ".", each.name()));
  return module;
}

HloModuleEditProto Asking(int calls) {
  HloModuleEditProto module = ModuleWithCall(std::string(xla::kPartitionTarget), kMatrices,
                                             Tiled({8, 1, 1}), kMatrices, Tiled({8, 1, 1}));
  auto& entry = *module.mutable_computations(0);
  for (int i = 1; i < calls; ++i) {
    HloInstructionEditProto next = *entry.instructions().rbegin();
    next.set_operand_ids(0, next.id());
    next.set_id(next.id() + 1);
    next.set_name(next.name() + "x");
    entry.set_root_id(next.id());
    *entry.add_instructions() = next;
  }
  return module;
}

xla::PartitionedCall AsTheyLie(const OpShardingProto& sharding) {
  xla::PartitionedCall answer;
  *answer.add_operand_shardings() = sharding;
  *answer.mutable_result_sharding() = sharding;
  return answer;
}

TEST(ShardedCallsTest, AskedCallsAreListedAndStay) {
  HloModuleEditProto module = Asking(2);
  module.mutable_computations(0)->mutable_instructions(1)->set_backend_config("who");
  const HloModuleEditProto before = module;
  const auto cut = Cut(module, 8, {});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(module.SerializeAsString(), before.SerializeAsString());
  ASSERT_EQ(cut->asked.calls_size(), 2);
  const xla::CallToPartition& asked = cut->asked.calls(0);
  EXPECT_EQ(asked.target(), xla::kPartitionTarget);
  EXPECT_EQ(asked.backend_config(), "who");
  EXPECT_EQ(asked.operands(0).SerializeAsString(), kMatrices.SerializeAsString());
  EXPECT_EQ(asked.result_sharding().SerializeAsString(), Tiled({8, 1, 1}).SerializeAsString());
}

TEST(ShardedCallsTest, AnAnsweredCallIsACallOfItsModule) {
  HloModuleEditProto module = Asking(2);
  const HloModuleEditProto body = Body(F32({4, 2, 4}));
  const xla::PartitionedCall answer = AsTheyLie(Tiled({4, 2, 1}));
  const auto cut = Cut(module, 8, {{&body, &answer}, {&body, &answer}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->cut, 2);
  ExpectConsistent(module);
  EXPECT_EQ(module.computations_size(), 5);
  std::set<int64_t> channels;
  int manual = 0;
  for (const auto& computation : module.computations())
    for (const auto& each : computation.instructions()) {
      if (each.channel_id() > 0) {
        EXPECT_TRUE(channels.insert(each.channel_id()).second);
      }
      manual += each.opcode() == "negate" && each.sharding().type() == OpShardingProto::TYPE_MANUAL;
      EXPECT_FALSE(each.opcode() == "add" && each.has_sharding());
      if (each.opcode() == "call") {
        EXPECT_THAT(Dims(each.shape()), ElementsAre(4, 2, 4));
      }
    }
  EXPECT_EQ(channels.size(), 2u);
  EXPECT_EQ(manual, 2);
}

TEST(ShardedCallsTest, ACallThatOnlyLooksIsDropped) {
  HloModuleEditProto module = ModuleWithCall(std::string(xla::kInspectTarget), kMatrices,
                                             Tiled({8, 1, 1}), kMatrices, OpShardingProto());
  module.mutable_computations(0)->mutable_instructions(1)->set_custom_call_has_side_effect(true);
  const auto cut = Cut(module, 8, {{}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  const auto& copy = module.computations(0).instructions(1);
  EXPECT_EQ(copy.opcode(), "copy");
  EXPECT_FALSE(copy.custom_call_has_side_effect());
  EXPECT_EQ(cut->asked.calls(0).operand_shardings(0).SerializeAsString(),
            Tiled({8, 1, 1}).SerializeAsString());
}

TEST(ShardedCallsTest, AnswersThatDoNotFitAreRefused) {
  const HloModuleEditProto body = Body(kMatrices);
  const xla::PartitionedCall fits = AsTheyLie(Tiled({8, 1, 1})),
                             uneven = AsTheyLie(Tiled({1, 8, 1}));
  xla::PartitionedCall more = fits, addends = fits;
  *more.add_operand_shardings() = Tiled({8, 1, 1});
  addends.mutable_result_sharding()->set_type(OpShardingProto::TYPE_UNREDUCED);
  HloModuleEditProto broken = body;
  broken.mutable_computations(1)->mutable_instructions(1)->set_operand_ids(0, 77);
  HloModuleEditProto rootless = body;
  rootless.set_entry_computation_id(77);
  HloModuleEditProto loud = body;
  loud.mutable_computations(1)->mutable_instructions(1)->set_channel_id(INT64_MAX / 2);
  const std::tuple<const char*, const char*, std::vector<CallAnswer>> cases[] = {
      {"too few", "1 are answered", {{&body, &fits}}},
      {"no module", "is not partitioned", {{&body, &fits}, {}}},
      {"too many shardings", "not one for each operand", {{&body, &fits}, {&body, &more}}},
      {"addends", "neither whole nor cut", {{&body, &fits}, {&body, &addends}}},
      {"uneven", "4", {{&body, &fits}, {&body, &uneven}}},
      {"an operand that is not there", "does not come before", {{&body, &fits}, {&broken, &fits}}},
      {"no entry", "no entry", {{&body, &fits}, {&rootless, &fits}}},
      {"too many channels", "channels", {{&loud, &fits}, {&loud, &fits}}},
  };
  for (const auto& [what, says, answers] : cases) {
    HloModuleEditProto module = Asking(2);
    const absl::Status refused = Cut(module, 8, answers).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(says)) << what;
  }
}

TEST(ShardedCallsTest, MalformedProgramsAreRefused) {
  const HloModuleEditProto good = Batch(Tiled({8, 1, 1}), Tiled({8, 1, 1}), Tiled({8}));
  const std::pair<const char*, std::function<void(HloModuleEditProto&)>> changes[] = {
      {"an operand later",
       [](auto& it) {
         it.mutable_computations(0)->mutable_instructions(1)->set_operand_ids(0, 5);
       }},
      {"a layout too many",
       [](auto& it) {
         it.mutable_computations(0)->mutable_instructions(1)->add_operand_shapes_with_layout();
       }},
      {"a sharding too many",
       [](auto& it) {
         it.mutable_computations(0)
             ->mutable_instructions(1)
             ->mutable_sharding()
             ->add_tuple_shardings();
       }},
      {"tiles of nobody",
       [](auto& it) {
         it.mutable_computations(0)
             ->mutable_instructions(1)
             ->mutable_sharding()
             ->mutable_tuple_shardings(0)
             ->set_tile_assignment_devices(0, 99);
       }},
      {"tiles of another array",
       [](auto& it) {
         *it.mutable_computations(0)
              ->mutable_instructions(1)
              ->mutable_sharding()
              ->mutable_tuple_shardings(0) = Tiled({});
       }},
      {"tiles of more positions",
       [](auto& it) {
         *it.mutable_computations(0)->mutable_instructions(0)->mutable_sharding() =
             Tiled({16, 1, 1});
       }},
      {"an id below 0", [](auto& it) { it.mutable_computations(0)->set_id(-1); }},
      {"an id too large",
       [](auto& it) { it.mutable_computations(0)->mutable_instructions(0)->set_id(INT64_MAX); }},
  };
  for (const auto& [what, change] : changes) {
    HloModuleEditProto module = good;
    change(module);
    EXPECT_EQ(Cut(module, 8, {}).status().code(), absl::StatusCode::kInvalidArgument) << what;
  }
}

}  // namespace
}  // namespace gangway::compiler
