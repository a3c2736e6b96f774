// The calls between whole arrays and shards: shapes follow from shardings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/compiler/check_calls/check_calls_test_util.h"

namespace gangway::compiler::calls {
namespace {

using ::testing::HasSubstr;
using xla::hlo::Module;
using xla::hlo::Sharding;

enum ShardingType { kReplicated = 0, kOther = 3, kManual = 4 };

Sharding Tiles(const std::vector<int64_t>& dims, const std::vector<int32_t>& last = {}) {
  Sharding sharding;
  sharding.set_type(kOther);
  sharding.mutable_tile_assignment_dimensions()->Add(dims.begin(), dims.end());
  sharding.mutable_last_tile_dims()->Add(last.begin(), last.end());
  return sharding;
}

Sharding OfType(int32_t type) {
  Sharding sharding;
  sharding.set_type(type);
  return sharding;
}

Module Border(const std::string& target, const xla::hlo::Shape& operand, const Sharding& before,
              const xla::hlo::Shape& result, const Sharding& after) {
  Module module = ModuleOf(target, {operand}, result);
  *module.mutable_computations(0)->mutable_instructions(0)->mutable_sharding() = before;
  *CallOf(module).mutable_sharding() = after;
  return module;
}

Module ToShard(const std::vector<int64_t>& whole, const Sharding& sharding,
               const std::vector<int64_t>& shard, const Sharding& manual = OfType(kManual)) {
  return Border("SPMDFullToShardShape", F32(whole), sharding, F32(shard), manual);
}

Module ToFull(const std::vector<int64_t>& shard, const Sharding& sharding,
              const std::vector<int64_t>& whole) {
  return Border("SPMDShardToFullShape", F32(shard), OfType(kManual), F32(whole), sharding);
}

void ExpectRefused(const Module& module, const std::string& why, int64_t partitions = 8) {
  const absl::Status status = CheckCallOf(module, "cpu", partitions);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(status.ToString(), HasSubstr(why));
}

TEST(ShardBorders, ShardsAreAsTheirShardingCutsThem) {
  EXPECT_TRUE(CheckCallOf(ToShard({8, 8}, Tiles({2, 4}), {4, 2})).ok());
  EXPECT_TRUE(CheckCallOf(ToShard({8, 8}, Tiles({2, 1, 4}), {4, 8})).ok());
  EXPECT_TRUE(CheckCallOf(ToShard({8, 8}, OfType(kReplicated), {8, 8})).ok());
  EXPECT_TRUE(CheckCallOf(ToFull({4, 2}, Tiles({2, 4}), {8, 8})).ok());
  EXPECT_TRUE(CheckCallOf(ToFull({8, 8}, OfType(kReplicated), {8, 8})).ok());
  ExpectRefused(ToShard({8, 8}, Tiles({2, 4}), {8, 8}), "no shards of shape [8,8]");
  ExpectRefused(ToShard({8, 8}, OfType(kReplicated), {8, 1000}), "no shards");
  ExpectRefused(ToShard({8, 8}, OfType(kReplicated), {64}), "no shards");
  ExpectRefused(ToShard({7, 8}, Tiles({2, 4}), {4, 2}), "no shards");
  ExpectRefused(ToFull({4, 2}, Tiles({2, 4}), {16, 8}), "no shards");
}

// Where a program is not partitioned, XLA puts the operand in the place of the result.
TEST(ShardBorders, NothingChangesOnOnePosition) {
  EXPECT_TRUE(CheckCallOf(ToShard({8}, OfType(kReplicated), {8}), "cpu", 1).ok());
  ExpectRefused(ToShard({8}, Tiles({8}), {1}), "8 parts on 1 positions", 1);
  ExpectRefused(ToFull({1}, Tiles({1000000}), {1000000}), "1000000 parts", 1);
}

TEST(ShardBorders, CutsAreManual) {
  EXPECT_TRUE(
      CheckCallOf(ToShard({8, 8}, Tiles({1, 2, 4}), {8, 4}, Tiles({1, 1, 2, 4}, {kManual, 0})))
          .ok());
  ExpectRefused(ToShard({8, 8}, Tiles({1, 4, 2}), {8, 2}, Tiles({1, 1, 2, 4}, {kManual, 0})),
                "4 parts on 2 positions");
  ExpectRefused(ToShard({8, 8}, Tiles({1, 2, 4}), {8, 4}, Tiles({1, 2, 2, 2}, {kManual, 0})),
                "cuts them again");
  ExpectRefused(ToShard({8, 8}, Tiles({1, 2, 4}), {8, 4}, OfType(kReplicated)), "not manual");
  ExpectRefused(ToShard({8, 8}, OfType(kManual), {8, 8}), "does not say how it is cut");
}

TEST(ShardBorders, ShardingsAreThere) {
  Module module = ToShard({8, 8}, Tiles({2, 4}), {4, 2});
  module.mutable_computations(0)->mutable_instructions(0)->clear_sharding();
  ExpectRefused(module, "is missing");
  module = ToShard({8, 8}, Tiles({2, 4}), {4, 2});
  CallOf(module).clear_sharding();
  ExpectRefused(module, "is missing");
  // Which of two instructions of one id is meant is XLA's to say.
  module = ToShard({8, 8}, Tiles({2, 4}), {4, 2});
  *module.add_computations()->add_instructions() = module.computations(0).instructions(0);
  ExpectRefused(module, "is missing");
}

TEST(ShardingCalls, KeepTheShapeOfTheirArray) {
  Module module = ModuleOf("Sharding", {F32({8, 8})}, F32({8, 8}));
  ExpectRefused(module, "no sharding");
  *CallOf(module).mutable_sharding() = OfType(kReplicated);
  EXPECT_TRUE(CheckCallOf(module).ok());
  CallOf(module).set_backend_config("unspecified_dims=[0,1]");
  EXPECT_TRUE(CheckCallOf(module).ok());
  for (const char* config : {"unspecified_dims=[0,2]", "unspecified_dims=[1,0]", "other",
                             "unspecified_dims=[]", "unspecified_dims=[-1]"}) {
    CallOf(module).set_backend_config(config);
    EXPECT_FALSE(CheckCallOf(module).ok()) << config;
  }
  CallOf(module).clear_backend_config();
  *CallOf(module).mutable_shape() = F32({8, 9});
  ExpectRefused(module, "its operand has shape [8,8] and its result [8,9]");
  *CallOf(module).mutable_shape() = Array(xla::TYPE_F64, {8, 8});
  ExpectRefused(module, "its operand has shape");
}

Module TextBorder(const std::string& target, const xla::hlo::Shape& operand,
                  const xla::hlo::Shape& result, const std::string& sharding,
                  const std::string& axes) {
  Module module = ModuleOf(target, {operand}, result);
  (*module.mutable_frontend_attributes()->mutable_map())["xla.sdy.meshes"] =
      R"({mesh = #sdy.mesh<["a"=2, "b"=4]>})";
  auto& attributes = *CallOf(module).mutable_frontend_attributes()->mutable_map();
  const bool to_shards = target.ends_with("ToLocalShape");
  attributes[to_shards ? "xla.sdy.in_shardings" : "xla.sdy.out_shardings"] =
      "#sdy.sharding_per_value<[<@mesh, [" + sharding + "]>]>";
  attributes["xla.sdy.manual_axes"] = "#sdy<manual_axes{" + axes + "}>";
  return module;
}

TEST(TextBorders, ShardsAreCutAlongTheManualAxes) {
  const auto local = [](std::vector<int64_t> shard, const std::string& sharding,
                        const std::string& axes) {
    return TextBorder("xla.sdy.GlobalToLocalShape", F32({8, 8}), F32(shard), sharding, axes);
  };
  EXPECT_TRUE(CheckCallOf(local({4, 2}, R"({"a"}, {"b"})", R"("a", "b")")).ok());
  EXPECT_TRUE(CheckCallOf(local({4, 8}, R"({"a"}, {"b", ?})", R"("a")")).ok());
  EXPECT_TRUE(CheckCallOf(local({1, 8}, R"({"a", "b"}, {})", R"("a", "b")")).ok());
  EXPECT_TRUE(CheckCallOf(local({8, 4}, R"({}, {"b":(1)2})", R"("a", "b")")).ok());
  ExpectRefused(local({8, 8}, R"({"a"}, {})", R"("a", "b")"), "no shards");
  ExpectRefused(local({4, 8}, R"({}, {})", R"("a", "b")"), "no shards");
  ExpectRefused(local({4, 8}, R"({"a"})", R"("a", "b")"), "no shards");
  ExpectRefused(local({4, 8}, R"({"a"}, {})", R"("c")"), "does not have");
  ExpectRefused(local({4, 8}, R"({"c"}, {})", R"("a")"), "does not have");
  ExpectRefused(local({4, 8}, R"({"a"}, {})", R"("a", "b")"), "has 8 positions, and the program 1",
                1);
  const auto global = [](std::vector<int64_t> whole, const std::string& sharding) {
    return TextBorder("xla.sdy.LocalToGlobalShape", F32({4, 2}), F32(whole), sharding,
                      R"("a", "b")");
  };
  EXPECT_TRUE(CheckCallOf(global({8, 8}, R"({"a"}, {"b"})")).ok());
  ExpectRefused(global({4, 1000}, R"({}, {})"), "no shards");
}

TEST(TextBorders, ArePassedByTokens) {
  const xla::hlo::Shape token = Array(xla::TYPE_TOKEN, {});
  EXPECT_TRUE(
      CheckCallOf(TextBorder("xla.sdy.GlobalToLocalShape", token, token, "", R"("a")")).ok());
  ExpectRefused(TextBorder("xla.sdy.GlobalToLocalShape", token, F32({}), "", R"("a")"),
                "no shards");
}

TEST(TextBorders, HaveTheirTextsAndMeshes) {
  const Module whole =
      TextBorder("xla.sdy.GlobalToLocalShape", F32({8, 8}), F32({4, 8}), R"({"a"}, {})", R"("a")");
  EXPECT_TRUE(CheckCallOf(whole).ok()) << CheckCallOf(whole);
  Module module = whole;
  module.clear_frontend_attributes();
  ExpectRefused(module, "names a mesh");
  module = whole;
  (*module.mutable_frontend_attributes()->mutable_map())["xla.sdy.meshes"] = "{mesh";
  ExpectRefused(module, "malformed");
  module = whole;
  CallOf(module).mutable_frontend_attributes()->mutable_map()->erase("xla.sdy.manual_axes");
  ExpectRefused(module, "xla.sdy.manual_axes");
  module = whole;
  *CallOf(module).mutable_shape() = Tuple({F32({4, 8}), F32({4, 8})});
  ExpectRefused(module, "one result for each operand");
}

TEST(TextShardings, AreOneForTheResultOfAFunction) {
  Module module = ModuleOf("xla.sdy.FuncResultSharding", {F32({8})}, F32({8}));
  (*module.mutable_frontend_attributes()->mutable_map())["xla.sdy.meshes"] =
      R"({mesh = #sdy.mesh<["a"=8]>})";
  ExpectRefused(module, "xla.sdy.sharding");
  auto& text = (*CallOf(module).mutable_frontend_attributes()->mutable_map())["xla.sdy.sharding"];
  text = R"(#sdy.sharding_per_value<[<@mesh, [{"a"}]>]>)";
  EXPECT_TRUE(CheckCallOf(module).ok()) << CheckCallOf(module);
  text = R"(#sdy.sharding_per_value<[<@mesh, [{"a"}]>, <@mesh, [{"a"}]>]>)";
  ExpectRefused(module, "not one sharding");
  text = R"(#sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>)";
  ExpectRefused(module, "another number of dimensions");
}

TEST(Placements, NameAKindOfMemory) {
  Module module = ModuleOf("annotate_device_placement", {F32({8})}, F32({8}));
  ExpectRefused(module, "_xla_buffer_placement");
  auto& kind =
      (*CallOf(module).mutable_frontend_attributes()->mutable_map())["_xla_buffer_placement"];
  kind = "pinned_host";
  EXPECT_TRUE(CheckCallOf(module).ok());
  kind = "elsewhere";
  ExpectRefused(module, "no kind of memory");
}

}  // namespace
}  // namespace gangway::compiler::calls
