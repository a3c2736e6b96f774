// StableHLO is converted to HLO as XLA does it, and none of XLA's passes runs.
#include "gangway/compiler/hlo_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/compiler/compiler_test_util.h"
#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTwice[] = R"(
module @twice attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
    %y = stablehlo.negate %x : tensor<4xf32>
    %z = stablehlo.negate %y : tensor<4xf32>
    return %z : tensor<4xf32>
  }
})";

xla::HloModuleEditProto Converted(const std::string& program) {
  xla::HloModuleEditProto module;
  const auto hlo = ConvertToHlo(Backend(), Request(1, program, 2));
  EXPECT_TRUE(hlo.ok()) << hlo.status();
  EXPECT_TRUE(hlo.ok() && module.ParseFromString(*hlo));
  return module;
}

TEST(HloConversion, YieldsTheProgramBeforeAnyPass) {
  const xla::HloModuleEditProto module = Converted(kTwice);
  ASSERT_EQ(module.computations_size(), 1);
  const auto& instructions = module.computations(0).instructions();
  // The first pass would remove both.
  ASSERT_EQ(instructions.size(), 3);
  EXPECT_EQ(instructions[0].opcode(), "parameter");
  EXPECT_TRUE(instructions[0].has_sharding());
  EXPECT_EQ(instructions[1].opcode(), "negate");
  EXPECT_EQ(instructions[2].opcode(), "negate");
}

TEST(HloConversion, AProgramThatCannotBeReadIsXlasError) {
  const auto hlo = ConvertToHlo(Backend(), Request(1, "module { nonsense }", 1));
  EXPECT_THAT(std::string(hlo.status().message()), HasSubstr("nonsense")) << hlo.status();
  EXPECT_THAT(std::string(hlo.status().message()), Not(HasSubstr("partition")));
}

// A program that no pass could take is converted, and the error is not that of the compile.
TEST(HloConversion, WhatXlaWouldRefuseLaterIsConverted) {
  const xla::HloModuleEditProto module = Converted(R"(
module @unknown {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.custom_call @nobody_has_this(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
})");
  EXPECT_EQ(module.computations(0).instructions(1).custom_call_target(), "nobody_has_this");
}

}  // namespace
}  // namespace gangway::compiler
