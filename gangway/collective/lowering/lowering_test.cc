// The lowering of programs built by hand: what the table says, how the chain runs, and what is refused by which name.
#include "gangway/collective/lowering/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"

#include "gangway/collective/lowering/module_test_util.h"
#include "gangway/xla/dtype.h"

namespace gangway::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;
using xla::Collective;
using xla::HloInstructionEditProto;

xla::HloModuleEditProto ProgramOf(const Lowered& lowered) {
  xla::HloModuleEditProto module;
  EXPECT_TRUE(module.ParseFromString(lowered.program));
  EXPECT_EQ(ModuleChecker(module).Defect(), "");
  return module;
}

// One instruction on a parameter of `shape`, for `replicas` x `partitions` positions.
absl::StatusOr<Lowered> LowerOne(const std::string& opcode, const xla::ShapeProto& from,
                                 const xla::ShapeProto& to,
                                 const std::function<void(HloInstructionEditProto&)>& edit,
                                 int64_t replicas = 4, int64_t partitions = 1,
                                 const std::string& reducer = "add") {
  ModuleBuilder builder(replicas, partitions);
  std::vector<int64_t> calls;
  if (opcode == "all-reduce" || opcode == "reduce-scatter") calls = {builder.Reducer(reducer)};
  builder.Begin("main");
  const int64_t parameter = builder.Parameter(from);
  edit(builder.Add(opcode, to, {parameter}, calls));
  return LowerCollectives(builder.Bytes());
}

std::vector<std::vector<uint32_t>> GroupsIn(const Lowered& lowered, int index = 0) {
  std::vector<std::vector<uint32_t>> groups;
  for (const auto& group : lowered.table.groups(index).groups())
    groups.emplace_back(group.positions().begin(), group.positions().end());
  return groups;
}

using GroupEdit = std::function<void(HloInstructionEditProto&)>;

absl::StatusOr<Lowered> LowerReduce(const GroupEdit& edit, int64_t replicas, int64_t partitions) {
  return LowerOne("all-reduce", F32({8}), F32({8}), edit, replicas, partitions);
}

TEST(LoweringTest, ACollectiveBecomesACallThatTheChainPasses) {
  auto lowered = LowerReduce([](auto&) {}, 4, 1);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  ASSERT_EQ(module.computations_size(), 1) << "the reduction is called no more";
  const auto& main = module.computations(0);
  std::vector<std::string> opcodes;
  for (const auto& instruction : main.instructions()) opcodes.push_back(instruction.opcode());
  EXPECT_THAT(opcodes, ElementsAre("parameter", "constant", "custom-call", "get-tuple-element",
                                   "get-tuple-element"));
  const auto& call = main.instructions(2);
  EXPECT_EQ(call.custom_call_target(), kCollectiveTarget);
  EXPECT_EQ(call.backend_config(), "{number = 0 : i64}");
  EXPECT_EQ(main.root_id(), main.instructions(3).id()) << "the result keeps its id";
  EXPECT_FALSE(lowered->table.may_diverge());
  const Collective& collective = lowered->table.collectives(0);
  EXPECT_EQ(collective.kind(), Collective::ALL_REDUCE);
  EXPECT_EQ(collective.reduction(), Collective::SUM);
  EXPECT_EQ(collective.operands(0).piece_bytes(), 32u);
  EXPECT_EQ(collective.name(), "all-reduce.2");
  EXPECT_THAT(GroupsIn(*lowered), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(LoweringTest, GroupsInEveryFormThatPluginsWrite) {
  const std::vector<std::vector<uint32_t>> expected = {{0, 2}, {1, 3}};
  const std::vector<GroupEdit> forms = {
      [](auto& all_reduce) {
        AddGroup(all_reduce, {0, 2});
        AddGroup(all_reduce, {1, 3});
      },
      [](auto& all_reduce) {
        auto& list = *all_reduce.mutable_collective_device_list();
        AddGroup(list, {0, 2});
        AddGroup(list, {1, 3});
      },
      [](auto& all_reduce) {
        FillIota(*all_reduce.mutable_collective_device_list()->mutable_iota_replica_group_list(), 2,
                 2, {2, 2}, {1, 0});
      },
      [](auto& all_reduce) {
        FillIota(*all_reduce.mutable_iota_collective_device_list(), 2, 2, {2, 2}, {1, 0});
      },
      [](auto& all_reduce) { FillMesh(all_reduce, {2, 2}, {{0}}); },
      [](auto& all_reduce) { FillMesh(all_reduce, {4}, {{0, 1, 2}}); },
      [](auto& all_reduce) { FillMesh(all_reduce, {2, 2}, {{1}}, {0, 2, 1, 3}); },
  };
  for (size_t form = 0; form < forms.size(); ++form) {
    auto lowered = LowerReduce(forms[form], 4, 1);
    ASSERT_TRUE(lowered.ok()) << form << ": " << lowered.status();
    EXPECT_EQ(GroupsIn(*lowered), expected) << form;
  }
  auto both = LowerReduce([&](auto& each) { forms[0](each), forms[2](each); }, 4, 1);
  ASSERT_TRUE(both.ok()) << "said twice, alike";
  EXPECT_EQ(GroupsIn(*both), expected);
}

// {8} <= {2, 2, 2} in another order: transposed as NumPy does.
TEST(LoweringTest, IotaGroupsOfThreeDimensionsAreTransposed) {
  auto lowered = LowerReduce(
      [](auto& all_reduce) {
        FillIota(*all_reduce.mutable_iota_collective_device_list(), 2, 4, {2, 2, 2}, {1, 2, 0});
      },
      8, 1);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(GroupsIn(*lowered), ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
}

// The ids of a group are in the order of the axes, and of the parts of an axis.
TEST(LoweringTest, GroupsAlongTheAxesOfAMesh) {
  const auto groups_of = [](const std::vector<int64_t>& sizes, const std::vector<MeshAxis>& axes) {
    auto lowered = LowerReduce([&](auto& each) { FillMesh(each, sizes, axes); }, 8, 1);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? GroupsIn(*lowered) : std::vector<std::vector<uint32_t>>();
  };
  EXPECT_THAT(groups_of({2, 2, 2}, {{0}, {2}}),
              ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(groups_of({8}, {{0, 1, 2}, {0, 4, 2}}),
              ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(groups_of({2, 4}, {{0}, {1, 2, 2}}),
              ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(groups_of({4, 2}, {{0, 2, 2}}), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3),
                                                          ElementsAre(4, 6), ElementsAre(5, 7)));
  EXPECT_THAT(groups_of({8}, {{0}}), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
}

TEST(LoweringTest, GroupsCountReplicasPartitionsOrBoth) {
  auto groups_of = [](const std::string& opcode, const GroupEdit& edit) {
    auto lowered = LowerOne(opcode, F32({8}), F32({8}), edit, 2, 3);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? GroupsIn(*lowered) : std::vector<std::vector<uint32_t>>();
  };
  EXPECT_THAT(groups_of("all-reduce", [](auto&) {}),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
  EXPECT_THAT(groups_of("all-reduce", [](auto& each) { each.set_channel_id(1); }),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
  EXPECT_THAT(groups_of("all-reduce",
                        [](auto& each) {
                          each.set_channel_id(1);
                          each.set_use_global_device_ids(true);
                          AddGroup(each, {5, 0, 1});
                          AddGroup(each, {2, 3, 4});
                        }),
              ElementsAre(ElementsAre(5, 0, 1), ElementsAre(2, 3, 4)));
  EXPECT_THAT(groups_of("collective-broadcast", [](auto& each) { each.set_channel_id(1); }),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5)));
}

TEST(LoweringTest, PermutesAreOfPositions) {
  auto pairs = [](bool of_partitions) {
    auto lowered = LowerOne(
        "collective-permute", F32({8}), F32({8}),
        [&](auto& permute) {
          if (of_partitions) permute.set_channel_id(7);
          auto& pair = *permute.add_source_target_pairs();
          pair.set_source(0);
          pair.set_target(1);
        },
        2, 3);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    const Collective& permute = lowered->table.collectives(0);
    std::vector<std::vector<uint32_t>> all;
    for (int i = 0; i < permute.sources_size(); ++i)
      all.push_back({permute.sources(i), permute.targets(i)});
    return all;
  };
  EXPECT_THAT(pairs(true), ElementsAre(ElementsAre(0, 1), ElementsAre(3, 4)));
  EXPECT_THAT(pairs(false), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
}

TEST(LoweringTest, ExtentsFollowTheOrderInMemory) {
  auto extents = [](const std::string& opcode, xla::ShapeProto from, xla::ShapeProto to,
                    int64_t dimension, bool column_major) {
    if (column_major) {
      for (xla::ShapeProto* shape : {&from, &to})
        std::ranges::reverse(*shape->mutable_layout()->mutable_minor_to_major());
    }
    auto lowered = LowerOne(opcode, from, to, [&](auto& each) { each.add_dimensions(dimension); });
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    const auto& operand = lowered->table.collectives(0).operands(0);
    return std::vector<uint64_t>{operand.outer(), operand.piece_bytes()};
  };
  EXPECT_THAT(extents("all-gather", F32({2, 3}), F32({2, 12}), 1, false), ElementsAre(2, 12));
  EXPECT_THAT(extents("all-gather", F32({2, 3}), F32({2, 12}), 1, true), ElementsAre(1, 24));
  EXPECT_THAT(extents("all-gather", F32({2, 3}), F32({8, 3}), 0, false), ElementsAre(1, 24));
  EXPECT_THAT(extents("reduce-scatter", F32({2, 12}), F32({2, 3}), 1, false), ElementsAre(2, 12));
  EXPECT_THAT(extents("all-to-all", F32({5, 8, 2}), F32({5, 8, 2}), 1, false), ElementsAre(5, 16));
  EXPECT_THAT(extents("all-gather", F32({0, 3}), F32({0, 12}), 1, false), ElementsAre(0, 0));
}

TEST(LoweringTest, TheTupleFormExchangesOperands) {
  ModuleBuilder builder(2, 1);
  builder.Begin("main");
  const int64_t a = builder.Parameter(F32({4})), b = builder.Parameter(F32({4}));
  builder.Add("all-to-all", TupleOf({F32({4}), F32({4})}), {a, b});
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ProgramOf(*lowered);
  EXPECT_EQ(lowered->table.collectives(0).kind(), Collective::ALL_TO_ALL_TUPLE);
  EXPECT_EQ(lowered->table.collectives(0).operands_size(), 2);
}

xla::ShapeProto Ints(std::initializer_list<int64_t> dims, xla::PrimitiveType type = xla::TYPE_S32) {
  xla::ShapeProto shape = F32(dims);
  shape.set_element_type(type);
  return shape;
}

// Operands and result of a ragged exchange.
struct Ragged {
  std::vector<xla::ShapeProto> operands = {F32({5, 2, 3}), F32({8, 2, 3}), Ints({4}),
                                           Ints({4}),      Ints({4}),      Ints({4})};
  xla::ShapeProto result = F32({8, 2, 3});
};

absl::StatusOr<Lowered> LowerRagged(const Ragged& shapes, const GroupEdit& edit = [](auto&) {}) {
  ModuleBuilder builder(2, 4);
  builder.Begin("main");
  std::vector<int64_t> operands;
  for (const xla::ShapeProto& shape : shapes.operands) operands.push_back(builder.Parameter(shape));
  auto& ragged = builder.Add("ragged-all-to-all", shapes.result, operands);
  ragged.set_channel_id(1);
  edit(ragged);
  return LowerCollectives(builder.Bytes());
}

TEST(LoweringTest, ARaggedExchangeIsOfRows) {
  Ragged shapes;
  shapes.operands[4] = Ints({4}, xla::TYPE_S64);
  auto lowered = LowerRagged(shapes);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ProgramOf(*lowered);
  const Collective& ragged = lowered->table.collectives(0);
  EXPECT_EQ(ragged.kind(), Collective::RAGGED_ALL_TO_ALL);
  ASSERT_EQ(ragged.operands_size(), 6);
  std::vector<std::vector<uint64_t>> extents;
  for (const auto& operand : ragged.operands())
    extents.push_back({operand.outer(), operand.piece_bytes()});
  EXPECT_THAT(extents, ElementsAre(ElementsAre(5, 24), ElementsAre(8, 24), ElementsAre(4, 4),
                                   ElementsAre(4, 4), ElementsAre(4, 8), ElementsAre(4, 4)));
  EXPECT_EQ(ragged.operands(4).element_type(), xla::TYPE_S64);
}

TEST(LoweringTest, ARaggedExchangeMayHaveNoRowsOrSeveralUpdatesForEachMember) {
  Ragged shapes;
  shapes.operands[0] = F32({0, 2, 3});
  for (size_t i = 2; i < 6; ++i) shapes.operands[i] = Ints({12});
  auto lowered = LowerRagged(shapes);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->table.collectives(0).operands(0).outer(), 0u);
  EXPECT_EQ(lowered->table.collectives(0).operands(0).piece_bytes(), 24u);
  EXPECT_EQ(lowered->table.collectives(0).operands(5).outer(), 12u);
}

// In every form, of replicas or of partitions.
TEST(LoweringTest, ARaggedExchangeHasTheGroupsOfOtherExchanges) {
  const auto groups = [](const GroupEdit& edit, int64_t entries) {
    Ragged shapes;
    for (size_t i = 2; i < 6; ++i) shapes.operands[i] = Ints({entries});
    auto lowered = LowerRagged(shapes, edit);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return GroupsIn(*lowered);
  };
  EXPECT_THAT(groups([](auto&) {}, 4),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(
      groups([](auto& each) { each.clear_channel_id(); }, 2),
      ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(groups(
                  [](auto& each) {
                    FillIota(*each.mutable_iota_collective_device_list(), 2, 2, {2, 2}, {1, 0});
                  },
                  2),
              UnorderedElementsAreArray(
                  std::vector<std::vector<uint32_t>>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_THAT(groups(
                  [](auto& each) {
                    AddGroup(*each.mutable_collective_device_list(), {3, 1});
                    AddGroup(*each.mutable_collective_device_list(), {0, 2});
                  },
                  2),
              UnorderedElementsAreArray(
                  std::vector<std::vector<uint32_t>>{{3, 1}, {7, 5}, {0, 2}, {4, 6}}));
}

TEST(LoweringTest, ARaggedExchangeThatDoesNotFitIsRefused) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kUnknown = absl::StatusCode::kUnimplemented;
  const auto expect_refused = [](const std::function<void(Ragged&)>& damage, absl::StatusCode code,
                                 const std::string& what, const GroupEdit& edit) {
    Ragged shapes;
    damage(shapes);
    const absl::Status status = LowerRagged(shapes, edit).status();
    EXPECT_EQ(status.code(), code) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ragged-all-to-all"));
  };
  const auto by_column = [](xla::ShapeProto& shape) {
    std::ranges::reverse(*shape.mutable_layout()->mutable_minor_to_major());
  };
  const auto across = [](xla::ShapeProto& shape) {
    shape.mutable_layout()->mutable_minor_to_major()->SwapElements(0, 1);
  };
  const std::vector<std::tuple<absl::StatusCode, std::string, std::function<void(Ragged&)>>>
      damages = {
          {kInvalid, "six operands", [](auto& it) { it.operands.pop_back(); }},
          {kUnknown, "one after another", [&](auto& it) { by_column(it.operands[0]); }},
          {kUnknown, "one after another", [&](auto& it) { by_column(it.operands[1]); }},
          {kUnknown, "laid out differently", [&](auto& it) { across(it.operands[0]); }},
          {kUnknown, "laid out differently", [&](auto& it) { across(it.result); }},
          {kInvalid, "do not fit together", [](auto& it) { it.operands[0] = F32({5, 6}); }},
          {kInvalid, "do not fit together", [](auto& it) { it.operands[0] = F32({5, 3, 2}); }},
          {kInvalid, "do not fit together", [](auto& it) { it.operands[0] = Ints({5, 2, 3}); }},
          {kInvalid, "do not fit together", [](auto& it) { it.result = F32({9, 2, 3}); }},
          {kUnknown, "elements are f4e2m1fn",
           [](auto& it) { it.operands[0] = Ints({5, 2, 3}, xla::TYPE_F4E2M1FN); }},
          {kUnknown, "of type f32", [](auto& it) { it.operands[3] = F32({4}); }},
          {kUnknown, "are not lists", [](auto& it) { it.operands[2] = Ints({4, 1}); }},
          {kInvalid, "differ in number", [](auto& it) { it.operands[5] = Ints({8}); }},
          {kInvalid, "6 offsets for 4 members",
           [](auto& it) { std::fill(it.operands.begin() + 2, it.operands.end(), Ints({6})); }},
          {kInvalid, "0 offsets for 4 members",
           [](auto& it) { std::fill(it.operands.begin() + 2, it.operands.end(), Ints({0})); }},
      };
  for (const auto& [code, what, damage] : damages) expect_refused(damage, code, what, [](auto&) {});
  expect_refused([](auto&) {}, kInvalid, "4 of the 8 positions",
                 [](auto& each) { AddGroup(each, {0, 1}); });
  expect_refused([](auto&) {}, kInvalid, "differ in size",
                 [](auto& each) {
                   AddGroup(each, {0, 1, 2});
                   AddGroup(each, {3});
                 });
  expect_refused([](auto&) {}, kUnknown, "uses global device ids",
                 [](auto& each) { each.set_use_global_device_ids(true); });
}

TEST(LoweringTest, ThePositionIsAskedFor) {
  ModuleBuilder builder(1, 4);
  builder.Begin("main");
  xla::ShapeProto u32 = F32({});
  u32.set_element_type(xla::TYPE_U32);
  const int64_t partition = builder.Add("partition-id", u32).id();
  const int64_t replica = builder.Add("replica-id", u32).id();
  builder.Add("add", u32, {partition, replica});
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  EXPECT_EQ(module.computations(0).instructions(0).backend_config(), "{replica = false}");
  EXPECT_EQ(module.computations(0).instructions(1).backend_config(), "{replica = true}");
  EXPECT_EQ(module.computations(0).instructions(1).custom_call_target(), kPositionTarget);
  EXPECT_EQ(lowered->table.collectives_size(), 0);
}

// --- The chain ---

// Adds a permute of `value` to the computation under construction.
int64_t Permute(ModuleBuilder& builder, int64_t value) {
  return builder.Add("collective-permute", F32({8}), {value}).id();
}

// The calls of collectives on the way that the chain takes to `id`, the last one first; callers count as one.
std::vector<std::string> ChainTo(const xla::HloComputationEditProto& computation, int64_t id) {
  std::map<int64_t, const HloInstructionEditProto*> by_id;
  for (const auto& instruction : computation.instructions()) by_id[instruction.id()] = &instruction;
  std::vector<std::string> way;
  while (true) {
    const HloInstructionEditProto& instruction = *by_id.at(id);
    if (instruction.operand_ids().empty()) return way;
    if (instruction.opcode() != "get-tuple-element" && instruction.opcode() != "tuple" &&
        instruction.opcode() != "copy")
      way.push_back(instruction.name());
    id = instruction.operand_ids(instruction.operand_ids_size() - 1);
  }
}

const xla::HloComputationEditProto& Named(const xla::HloModuleEditProto& module,
                                          std::string_view name) {
  for (const auto& computation : module.computations())
    if (computation.name() == name) return computation;
  ADD_FAILURE() << "no computation " << name;
  return module.computations(0);
}

int64_t LastCall(const xla::HloComputationEditProto& computation) {
  int64_t id = 0;
  for (const auto& instruction : computation.instructions())
    if (instruction.custom_call_target() == kCollectiveTarget) id = instruction.id();
  return id;
}

TEST(LoweringTest, TheChainGoesThroughLoopsBranchesAndCalls) {
  ModuleBuilder builder(4, 1);
  const auto array = F32({8}), pred = F32({});
  const int64_t callee = builder.Begin("callee");
  Permute(builder, builder.Parameter(array));
  const int64_t body = builder.Begin("body");
  Permute(builder, builder.Parameter(array));
  const int64_t condition = builder.Begin("condition");
  builder.Parameter(array);
  builder.Add("constant", pred);
  const int64_t then = builder.Begin("then");
  builder.Add("negate", array, {builder.Parameter(array)});
  const int64_t otherwise = builder.Begin("otherwise");
  Permute(builder, Permute(builder, builder.Parameter(array)));
  builder.Begin("main");
  int64_t value = builder.Parameter(array);
  const int64_t choice = builder.Parameter(pred);
  value = builder.Add("while", array, {value}, {body, condition}).id();
  value = Permute(builder, value);
  value = builder.Add("conditional", array, {choice, value, value}, {then, otherwise}).id();
  value = builder.Add("call", array, {value}, {callee}).id();
  value = builder.Add("call", array, {value}, {callee}).id();
  Permute(builder, value);
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->table.collectives_size(), 6);
  EXPECT_TRUE(lowered->table.may_diverge());
  const auto module = ProgramOf(*lowered);
  const auto& main = Named(module, "main");
  EXPECT_THAT(ChainTo(main, LastCall(main)),
              ElementsAre("collective-permute.8.call", "call.7.chained", "call.6.chained",
                          "conditional.5.chained", "collective-permute.4.call", "while.3.chained"));
  for (const char* name : {"callee", "body", "otherwise"}) {
    const auto& computation = Named(module, name);
    EXPECT_EQ(ChainTo(computation, computation.root_id()),
              ChainTo(computation, LastCall(computation)))
        << name << " returns the chain of its last collective";
  }
  // A branch without a collective passes it on, and a loop's condition only takes it.
  EXPECT_THAT(ChainTo(Named(module, "then"), Named(module, "then").root_id()), ElementsAre());
  EXPECT_EQ(Named(module, "condition").program_shape().parameters(0).tuple_shapes_size(), 2);
  EXPECT_EQ(Named(module, "condition").program_shape().result().tuple_shapes_size(), 0);
}

TEST(LoweringTest, PositionsGoRoundALoopOfKnownLengthAsOften) {
  for (const bool is_known : {false, true}) {
    ModuleBuilder builder(4, 1);
    const auto array = F32({8}), pred = F32({});
    const int64_t body = builder.Begin("body");
    Permute(builder, builder.Parameter(array));
    const int64_t condition = builder.Begin("condition");
    builder.Parameter(array);
    builder.Add("constant", pred);
    builder.Begin("main");
    auto& loop = builder.Add("while", array, {builder.Parameter(array)}, {body, condition});
    if (is_known) loop.set_backend_config("{\"known_trip_count\":{\"n\":\"12\"}}");
    const auto lowered = LowerCollectives(builder.Bytes());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->table.may_diverge(), !is_known);
  }
}

TEST(LoweringTest, ABranchIsSharedOnlyWhereTheChainGoesEverywhere) {
  ModuleBuilder builder(4, 1);
  const auto array = F32({8}), pred = F32({});
  const int64_t silent = builder.Begin("silent");
  builder.Parameter(array);
  const int64_t other = builder.Begin("other");
  builder.Parameter(array);
  const int64_t speaking = builder.Begin("speaking");
  Permute(builder, builder.Parameter(array));
  builder.Begin("main");
  int64_t value = builder.Parameter(array);
  const int64_t choice = builder.Parameter(pred);
  value = builder.Add("conditional", array, {choice, value, value}, {silent, other}).id();
  builder.Add("conditional", array, {choice, value, value}, {silent, speaking});
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  EXPECT_EQ(Named(module, "other").program_shape().result().tuple_shapes_size(), 2);
}

TEST(LoweringTest, TheScheduleDecidesTheOrderOfTheChain) {
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  const int64_t x = builder.Parameter(F32({8}));
  const int64_t first = Permute(builder, x), second = Permute(builder, x);
  const int64_t root = builder.Add("add", F32({8}), {first, second}).id();
  auto& schedule = *builder.program().mutable_module()->mutable_schedule()->mutable_sequences();
  auto& order = *schedule.begin()->second.mutable_instruction_ids();
  order.Clear();
  for (int64_t id : {x, second, first, root}) order.Add(id);
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  EXPECT_THAT(ChainTo(module.computations(0), LastCall(module.computations(0))),
              ElementsAre("collective-permute.2.call", "collective-permute.3.call"));
}

TEST(LoweringTest, FieldsThatItDoesNotKnowStay) {
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  builder.Parameter(F32({8}));
  auto& negate =
      builder.Add("negate", F32({8}), {builder.program().module().computations(0).root_id()});
  negate.GetReflection()->MutableUnknownFields(&negate)->AddVarint(999, 5);
  xla::HloModuleEditProto& before = *builder.program().mutable_module();
  constexpr int kInputOutputAlias = 8;  // a field of the module
  before.GetReflection()->MutableUnknownFields(&before)->AddLengthDelimited(kInputOutputAlias, "x");
  Permute(builder, negate.id());
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  const auto& kept = module.computations(0).instructions(1);
  EXPECT_EQ(kept.opcode(), "negate");
  EXPECT_EQ(kept.GetReflection()->GetUnknownFields(kept).field_count(), 1);
  const auto& of_module = module.GetReflection()->GetUnknownFields(module);
  ASSERT_EQ(of_module.field_count(), 1);
  EXPECT_EQ(of_module.field(0).number(), kInputOutputAlias);
}

TEST(LoweringTest, WhatMustRunBeforeACollectiveStaysBeforeIt) {
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  const int64_t x = builder.Parameter(F32({8}));
  const int64_t before = builder.Add("negate", F32({8}), {x}).id();
  const int64_t first = Permute(builder, x);
  builder.Add("negate", F32({8}), {first}).add_control_predecessor_ids(first);
  auto& given = *builder.program().mutable_module()->mutable_computations(0);
  given.mutable_instructions(2)->add_control_predecessor_ids(before);
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  const auto& main = module.computations(0);
  const auto call =
      std::ranges::find(main.instructions(), LastCall(main), &HloInstructionEditProto::id);
  EXPECT_THAT(call->control_predecessor_ids(), ElementsAre(before));
  EXPECT_THAT(main.instructions().rbegin()->control_predecessor_ids(), ElementsAre(first));
}

TEST(LoweringTest, TheSourceLineIsTheUsersOwn) {
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  auto& permute = builder.Add("collective-permute", F32({8}), {builder.Parameter(F32({8}))});
  permute.mutable_metadata()->set_stack_frame_id(2);
  auto& frames = *builder.program().mutable_module()->mutable_stack_frame_index();
  frames.add_file_names("/home/me/train.py");
  frames.add_file_names("/usr/lib/site-packages/jax/lax.py");
  frames.add_function_names("step");
  for (int file : {1, 2}) {
    auto& location = *frames.add_file_locations();
    location.set_file_name_id(file);
    location.set_function_name_id(1);
    location.set_line(40 + file);
    auto& frame = *frames.add_stack_frames();
    frame.set_file_location_id(file);
    frame.set_parent_frame_id(file - 1);
  }
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->table.collectives(0).source(), "/home/me/train.py:41");
}

// --- Refusals ---

struct Refusal {
  std::string what;
  absl::StatusCode code;
  std::string opcode;
  GroupEdit edit;
  std::string reducer = "add";
};

TEST(LoweringTest, WhatIsNotKnownIsRefusedByItsName) {
  auto group = [](std::vector<std::vector<int64_t>> groups) -> GroupEdit {
    return [groups](auto& each) {
      for (const auto& ids : groups) AddGroup(each, ids);
    };
  };
  auto pair = [](std::vector<std::pair<int64_t, int64_t>> pairs) -> GroupEdit {
    return [pairs](auto& each) {
      for (auto [source, target] : pairs) {
        each.add_source_target_pairs()->set_source(source);
        each.mutable_source_target_pairs()->rbegin()->set_target(target);
      }
    };
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kUnknown = absl::StatusCode::kUnimplemented;
  const GroupEdit none = [](auto&) {};
  const auto mesh = [](const std::vector<int64_t>& sizes, const std::vector<MeshAxis>& axes,
                       const std::vector<int64_t>& ids = {}) -> GroupEdit {
    return [=](auto& each) { FillMesh(each, sizes, axes, ids); };
  };
  const std::vector<Refusal> refusals = {
      {"name 1 twice", kInvalid, "all-reduce", group({{0, 1}, {1, 2, 3}})},
      {"3 of the 4 positions", kInvalid, "all-reduce", group({{0, 1, 2}})},
      {"names 4", kInvalid, "all-reduce", group({{0, 1, 2, 4}})},
      {"names -1", kInvalid, "all-reduce", group({{0, 1, 2, -1}})},
      {"is empty", kInvalid, "all-reduce", group({{0, 1, 2, 3}, {}})},
      {"differ in size", kInvalid, "reduce-scatter", group({{0, 1, 2}, {3}})},
      {"without a channel", kInvalid, "all-reduce",
       [](auto& each) { each.set_use_global_device_ids(true); }},
      {"1 of the 4 positions", kInvalid, "all-reduce", mesh({}, {})},
      {"along axis 2 of 2", kInvalid, "all-reduce", mesh({2, 2}, {{2}})},
      {"along axis -1 of 2", kInvalid, "all-reduce", mesh({2, 2}, {{-1}})},
      {"axes of its mesh do not fit", kInvalid, "all-reduce", mesh({2, 4}, {{0}})},
      {"axes of its mesh do not fit", kInvalid, "all-reduce", mesh({0, 4}, {{0}})},
      {"axes of its mesh do not fit", kInvalid, "all-reduce",
       mesh({int64_t{1} << 62, int64_t{1} << 62}, {{0}})},
      {"ids of its mesh do not fit", kInvalid, "all-reduce", mesh({2, 2}, {{0}}, {0, 1})},
      {"names 7", kInvalid, "all-reduce", mesh({2, 2}, {{0}}, {0, 1, 2, 7})},
      {"name 1 twice", kInvalid, "all-reduce", mesh({2, 2}, {{0}}, {0, 1, 2, 1})},
      {"not in order", kUnknown, "all-reduce", mesh({2, 2}, {{1}, {0}})},
      {"not in order", kUnknown, "all-reduce", mesh({2, 2}, {{0}, {0}})},
      {"not in order", kUnknown, "all-reduce", mesh({4}, {{0, 2, 2}, {0, 1, 2}})},
      {"do not divide it", kInvalid, "all-reduce", mesh({4}, {{0, 3, 1}})},
      {"do not divide it", kInvalid, "all-reduce", mesh({4}, {{0, 1, 3}})},
      {"do not divide it", kInvalid, "all-reduce", mesh({4}, {{0, 0, 2}})},
      {"do not divide it", kInvalid, "all-reduce", mesh({4}, {{0, 2, int64_t{1} << 62}})},
      {"not a permutation", kInvalid, "all-reduce",
       [](auto& each) {
         FillIota(*each.mutable_iota_collective_device_list(), 2, 2, {2, 2}, {1, 1});
       }},
      {"do not fit", kInvalid, "all-reduce",
       [](auto& each) {
         FillIota(*each.mutable_iota_collective_device_list(), 2, 2, {int64_t{1} << 62, 8}, {});
       }},
      {"2 x 9", kInvalid, "all-reduce",
       [](auto& each) { FillIota(*each.mutable_iota_collective_device_list(), 2, 9, {}, {}); }},
      {"names its groups twice", kInvalid, "all-reduce",
       [&](auto& each) {
         group({{0, 1, 2, 3}})(each);
         FillIota(*each.mutable_iota_collective_device_list(), 2, 2, {}, {});
       }},
      {"reduction is subtract", kUnknown, "all-reduce", none, "subtract"},
      {"from 0 twice", kInvalid, "collective-permute", pair({{0, 1}, {0, 2}})},
      {"to 1 twice", kInvalid, "collective-permute", pair({{0, 1}, {2, 1}})},
      {"of 4 ids", kInvalid, "collective-permute", pair({{0, 4}})},
      {"do not fit together", kInvalid, "collective-permute",
       [](auto& each) { each.mutable_shape()->set_dimensions(0, 16); }},
      {"tiled", kUnknown, "collective-permute",
       [](auto& each) { each.mutable_shape()->mutable_layout()->add_tiles(); }},
      {"names 0 dimensions", kInvalid, "all-gather", none},
      {"along dimension 3", kInvalid, "all-gather", [](auto& each) { each.add_dimensions(3); }},
      {"not known", kUnknown, "all-reduce-start", none},
      {"not known", kUnknown, "collective-permute-done", none},
      {"not known", kUnknown, "async-start", none},
      {"not known", kUnknown, "send", none},
      {"which no program may call", kInvalid, "custom-call",
       [](auto& each) { each.set_custom_call_target(std::string(kCollectiveTarget)); }},
      {"which no program may call", kInvalid, "custom-call",
       [](auto& each) { each.set_custom_call_target(std::string(kPositionTarget)); }},
  };
  for (const Refusal& refusal : refusals) {
    auto lowered =
        LowerOne(refusal.opcode, F32({8}), F32({8}), refusal.edit, 4, 1, refusal.reducer);
    EXPECT_EQ(lowered.status().code(), refusal.code) << refusal.what << ": " << lowered.status();
    EXPECT_THAT(std::string(lowered.status().message()), HasSubstr(refusal.what));
    EXPECT_THAT(std::string(lowered.status().message()), HasSubstr(refusal.opcode));
  }
}

xla::ShapeProto Packed(std::initializer_list<int64_t> dims, xla::PrimitiveType type, int bits) {
  xla::ShapeProto shape = Ints(dims, type);
  shape.mutable_layout()->set_element_size_in_bits(bits);
  return shape;
}

TEST(LoweringTest, FloatsOfLessThanAByteAreRefused) {
  const xla::ShapeProto narrow = Packed({8}, xla::TYPE_F4E2M1FN, 4);
  auto lowered = LowerOne("collective-permute", narrow, narrow, [](auto&) {});
  EXPECT_EQ(lowered.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(lowered.status().message()), HasSubstr("its elements are f4e2m1fn"));
}

TEST(LoweringTest, IntegersOfLessThanAByteAreBytesOnTheirWay) {
  const std::vector<std::tuple<xla::PrimitiveType, int, xla::PrimitiveType>> types = {
      {xla::TYPE_S1, 1, xla::TYPE_S8}, {xla::TYPE_S2, 2, xla::TYPE_S8},
      {xla::TYPE_S4, 4, xla::TYPE_S8}, {xla::TYPE_U1, 1, xla::TYPE_U8},
      {xla::TYPE_U2, 2, xla::TYPE_U8}, {xla::TYPE_U4, 4, xla::TYPE_U8}};
  for (const auto& [type, bits, byte] : types) {
    SCOPED_TRACE(xla::ElementName(type));
    auto lowered = LowerOne("all-gather", Packed({2, 3}, type, bits), Packed({8, 3}, type, bits),
                            [](auto& each) { each.add_dimensions(0); });
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto module = ProgramOf(*lowered);
    const auto& main = module.computations(0);
    std::vector<std::string> names;
    for (const auto& instruction : main.instructions()) names.push_back(instruction.name());
    EXPECT_THAT(names,
                ElementsAre("parameter.1", "all-gather.2.wide.0", "chain.zero", "all-gather.2.call",
                            "all-gather.2", "all-gather.2.chain", "all-gather.2.narrow"));
    EXPECT_EQ(main.instructions(1).shape().SerializeAsString(),
              Ints({2, 3}, byte).SerializeAsString());
    EXPECT_EQ(main.instructions(4).shape().SerializeAsString(),
              Ints({8, 3}, byte).SerializeAsString());
    EXPECT_EQ(main.instructions(6).shape().SerializeAsString(),
              Packed({8, 3}, type, bits).SerializeAsString());
    EXPECT_EQ(main.root_id(), main.instructions(6).id()) << "the result keeps its id";
    const Collective& collective = lowered->table.collectives(0);
    EXPECT_EQ(collective.name(), "all-gather.2");
    EXPECT_EQ(collective.operands(0).element_type(), byte);
    EXPECT_EQ(collective.operands(0).piece_bytes(), 6u);
    EXPECT_TRUE(lowered->widens);
  }
}

TEST(LoweringTest, OfSeveralArraysOnlyThoseOfLessThanAByteAreConverted) {
  const xla::ShapeProto narrow = Packed({8}, xla::TYPE_S2, 2);
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  const int64_t a = builder.Parameter(narrow), b = builder.Parameter(F32({8}));
  const int64_t both = builder.Add("collective-permute", TupleOf({narrow, F32({8})}), {a, b}).id();
  builder.Part(narrow, both, 0);
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto module = ProgramOf(*lowered);
  std::map<std::string, const HloInstructionEditProto*> by_name;
  for (const auto& instruction : module.computations(0).instructions())
    by_name[instruction.name()] = &instruction;
  const auto operands = [&](const std::string& name) {
    const auto& ids = by_name.at(name)->operand_ids();
    return std::vector<int64_t>(ids.begin(), ids.end());
  };
  const auto id = [&](const std::string& name) { return by_name.at(name)->id(); };
  const std::string name = "collective-permute.3";
  EXPECT_THAT(operands(name + ".wide.0"), ElementsAre(a));
  EXPECT_THAT(operands(name + ".call"), ElementsAre(id(name + ".wide.0"), b, id("chain.zero")));
  for (int i = 0; i < 2; ++i) {
    const std::string part = absl::StrCat(name, ".narrow.", i, ".wide");
    EXPECT_EQ(by_name.at(part)->tuple_index(), i);
    EXPECT_THAT(operands(part), ElementsAre(id(name)));
  }
  EXPECT_THAT(operands(name + ".narrow.0"), ElementsAre(id(name + ".narrow.0.wide")));
  EXPECT_EQ(by_name.at(name + ".narrow.0")->shape().element_type(), xla::TYPE_S2);
  EXPECT_THAT(operands(name + ".narrow"),
              ElementsAre(id(name + ".narrow.0"), id(name + ".narrow.1.wide")));
  EXPECT_EQ(id(name + ".narrow"), both) << "the result keeps its id";
}

// The runtime has to be told that they are packed.
TEST(LoweringTest, TheShapesOfArgumentsAndResultsKeepTheirLayouts) {
  const xla::ShapeProto narrow = Packed({8}, xla::TYPE_S4, 4);
  ModuleBuilder builder(4, 1);
  builder.Begin("callee");
  builder.Parameter(F32({3}));
  builder.Begin("main");
  builder.Parameter(F32({2}));
  builder.Parameter(narrow);
  auto lowered = LowerCollectives(builder.Bytes());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(lowered->shape.parameters_size(), 2);
  EXPECT_EQ(lowered->shape.parameters(0).SerializeAsString(), F32({2}).SerializeAsString());
  EXPECT_EQ(lowered->shape.parameters(1).layout().element_size_in_bits(), 4);
  EXPECT_EQ(lowered->shape.result().SerializeAsString(), narrow.SerializeAsString());
}

TEST(LoweringTest, CommunicationInsideOfAnOperationIsRefused) {
  ModuleBuilder builder(4, 1);
  const int64_t fused = builder.Begin("fused");
  Permute(builder, builder.Parameter(F32({8})));
  builder.Begin("main");
  builder.Add("fusion", F32({8}), {builder.Parameter(F32({8}))}, {fused});
  auto lowered = LowerCollectives(builder.Bytes());
  EXPECT_EQ(lowered.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(lowered.status().message()), HasSubstr("fused, a part of an operation"));
}

TEST(LoweringTest, AComputationIsNotCalledInTwoWays) {
  ModuleBuilder builder(4, 1);
  const int64_t callee = builder.Begin("callee");
  Permute(builder, builder.Parameter(F32({8})));
  builder.Begin("main");
  const int64_t called =
      builder.Add("call", F32({8}), {builder.Parameter(F32({8}))}, {callee}).id();
  const int64_t choice = builder.Parameter(F32({}));
  builder.Add("conditional", F32({8}), {choice, called}, {callee});
  auto lowered = LowerCollectives(builder.Bytes());
  EXPECT_EQ(lowered.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(lowered.status().message()), HasSubstr("called in two ways"));
}

TEST(LoweringTest, MalformedModulesAreRefused) {
  const std::vector<std::function<void(xla::HloModuleEditProto&)>> damages = {
      [](auto& module) { module.set_entry_computation_id(77); },
      [](auto& module) { module.mutable_computations(1)->set_id(4); },
      [](auto& module) {  // two of one id
        auto& main = *module.mutable_computations(1);
        main.mutable_instructions(1)->set_id(main.instructions(0).id());
      },
      [](auto& module) { module.mutable_computations(1)->set_root_id(5); },
      [](auto& module) {
        module.mutable_computations(1)->mutable_instructions(1)->set_operand_ids(0, 9);
      },
      [](auto& module) {
        module.mutable_computations(1)->mutable_instructions(1)->clear_operand_ids();
      },
      [](auto& module) {
        module.mutable_computations(1)->mutable_instructions(1)->set_called_computation_ids(0, 8);
      },
      [](auto& module) { module.mutable_computations()->SwapElements(0, 1); },
      [](auto& module) { module.clear_schedule(); },
      [](auto& module) {
        module.mutable_schedule()->mutable_sequences()->at(8).clear_instruction_ids();
      },
      [](auto& module) {
        auto& order =
            *module.mutable_schedule()->mutable_sequences()->at(8).mutable_instruction_ids();
        order.SwapElements(0, 1);
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    ModuleBuilder builder(4, 1);
    const int64_t reducer = builder.Reducer("add");
    builder.Begin("main");
    const int64_t parameter = builder.Parameter(F32({8}));
    builder.Add("all-reduce", F32({8}), {parameter}, {reducer});
    damages[i](*builder.program().mutable_module());
    EXPECT_EQ(LowerCollectives(builder.Bytes()).status().code(), absl::StatusCode::kInvalidArgument)
        << "damage " << i;
  }
  EXPECT_EQ(LowerCollectives("not a module").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LowerCollectives("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LoweringTest, AnOwnCallIsFoundBehindWhateverElseIsRefused) {
  ModuleBuilder builder(4, 1);
  builder.Begin("main");
  const int64_t started = builder.Add("async-start", F32({8}), {builder.Parameter(F32({8}))}).id();
  builder.Add("custom-call", F32({8}), {started})
      .set_custom_call_target(std::string(kPositionTarget));
  EXPECT_EQ(CheckNoOwnCalls(builder.Bytes()).code(), absl::StatusCode::kInvalidArgument);
  builder.Begin("other");
  builder.Parameter(F32({8}));
  builder.program().mutable_module()->mutable_computations()->DeleteSubrange(0, 1);
  EXPECT_TRUE(CheckNoOwnCalls(builder.Bytes()).ok());
}

absl::Status CheckOne(const std::string& opcode, const GroupEdit& edit) {
  ModuleBuilder builder(2, 4);
  builder.Begin("main");
  const int64_t parameter = builder.Parameter(F32({8}));
  edit(builder.Add(opcode, F32({8}), {parameter}));
  return CheckKeptCollectives(builder.Bytes());
}

GroupEdit Groups(const std::vector<std::vector<int64_t>>& groups, bool of_positions = false) {
  return [=](HloInstructionEditProto& instruction) {
    for (const auto& group : groups) AddGroup(instruction, group);
    if (of_positions) instruction.set_channel_id(1);
    instruction.set_use_global_device_ids(of_positions);
  };
}

GroupEdit Pairs(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  return [=](HloInstructionEditProto& instruction) {
    instruction.set_channel_id(1);
    for (const auto& [source, target] : pairs) {
      auto& pair = *instruction.add_source_target_pairs();
      pair.set_source(source);
      pair.set_target(target);
    }
  };
}

TEST(LoweringTest, MembersOfTheRuntimesOwnCollectivesAreChecked) {
  const std::vector<std::tuple<std::string, GroupEdit, std::string>> wrong = {
      {"all-reduce", Groups({{0, 1}, {1}}), "all-reduce.2 (all-reduce): its groups name 1 twice"},
      {"all-gather", Groups({{0}}), "its groups have 4 of the 8 positions"},
      {"all-to-all", Groups({{0, 1}, {2}}), "a group names 2, and there are 2 ids"},
      {"reduce-scatter", Groups({{0, 1, 2, 3, 4, 5, 6, -1}}, true), "a group names -1"},
      {"collective-broadcast", Groups({{2}}), "a group names 2, and there are 2 ids"},
      {"collective-permute", Pairs({{0, 4}}), "it sends from 0 to 4 of 4 ids"},
      {"collective-permute", Pairs({{0, 1}, {0, 2}}), "it sends from 0 twice"},
      {"collective-permute", Pairs({{0, 1}, {2, 1}}), "it sends to 1 twice"},
  };
  for (const auto& [opcode, edit, why] : wrong) {
    const absl::Status status = CheckOne(opcode, edit);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(opcode));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  EXPECT_EQ(CheckKeptCollectives("all-gather").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckKeptCollectives("x"), absl::OkStatus()) << "it names no collective";
}

TEST(LoweringTest, TheRuntimesOwnCollectivesOfPackedElementsAreRefused) {
  for (const std::string opcode : {"all-gather-start", "collective-permute-start", "send"}) {
    ModuleBuilder builder(2, 1);
    builder.Begin("main");
    const xla::ShapeProto narrow = Ints({8}, xla::TYPE_S2);
    builder.Add(opcode, TupleOf({narrow, narrow}), {builder.Parameter(narrow)});
    const absl::Status status = CheckKeptCollectives(builder.Bytes());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << opcode << ": " << status;
  }
  for (auto type : {xla::TYPE_S2, xla::TYPE_U2, xla::TYPE_S4, xla::TYPE_F4E2M1FN}) {
    ModuleBuilder builder(2, 1);
    builder.Begin("main");
    const int64_t a = builder.Parameter(F32({8})), b = builder.Parameter(Ints({8}, type));
    builder.Add("all-to-all", TupleOf({F32({8}), Ints({8}, type)}), {a, b});
    const absl::Status status = CheckKeptCollectives(builder.Bytes());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("all-to-all.3 (all-to-all): its elements are ",
                                       std::string(xla::ElementName(type)))));
  }
}

// The runtime decides: here are reductions without a computation, and groups that would be wrong in a known form.
TEST(LoweringTest, WhatIsNotKnownOfTheRuntimesOwnCollectivesPasses) {
  const std::vector<std::pair<std::string, GroupEdit>> right = {
      {"all-reduce", [](auto&) {}},
      {"all-reduce", Groups({{1}, {0}})},
      {"all-reduce", Groups({{7, 1, 2, 3, 4, 5, 6, 0}}, true)},
      {"all-reduce", [](auto& each) { FillMesh(each, {2, 1}, {{1}, {0}}); }},
      {"all-to-all", Groups({{0, 9}}, true)},
      {"all-reduce-start", Groups({{0, 9}})},
      {"collective-broadcast", Groups({{1}})},
      {"collective-permute", Pairs({{3, 3}})},
      {"collective-permute-start", Pairs({{0, 9}})},
      {"send", Pairs({{0, 9}})},
      {"custom-call", Groups({{0, 9}})},
  };
  for (const auto& [opcode, edit] : right) EXPECT_EQ(CheckOne(opcode, edit), absl::OkStatus());
  ModuleBuilder unscheduled(2, 4);
  unscheduled.program().clear_module();
  EXPECT_EQ(CheckKeptCollectives(unscheduled.Bytes()), absl::OkStatus());
}

TEST(LoweringTest, PairsAreBounded) {
  ModuleBuilder builder(2, 1 << 15);
  builder.Begin("main");
  int64_t value = builder.Parameter(F32({8}));
  for (int i = 0; i < 600; ++i) {
    auto& permute = builder.Add("collective-permute", F32({8}), {value});
    permute.add_source_target_pairs()->set_target(1);
    value = permute.id();
  }
  EXPECT_EQ(LowerCollectives(builder.Bytes()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LoweringTest, PositionsAreBounded) {
  ModuleBuilder builder(int64_t{1} << 40, int64_t{1} << 40);
  builder.Begin("main");
  Permute(builder, builder.Parameter(F32({8})));
  EXPECT_EQ(LowerCollectives(builder.Bytes()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace gangway::collective
