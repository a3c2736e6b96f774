// The costs of programs as xla/cost_analysis.h counts them, beside those that XLA counts itself, which the older CPU
// plugin does: the same instructions of the same optimized programs.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/device/pjrt/pjrt_test_programs.h"
#include "gangway/xla/cost_analysis.h"
#include "gangway/xla/executable.h"

namespace gangway::device {
namespace {

struct Counted {
  const char* name;
  const char* body;
};

constexpr Counted kPrograms[] = {
    {"product",
     R"(func.func public @main(%x: tensor<64x128xf32>, %w: tensor<128x32xf32>) -> tensor<64x32xf32> {
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<64x128xf32>, tensor<128x32xf32>) -> tensor<64x32xf32>
      return %y : tensor<64x32xf32>
    })"},
    {"batch of products",
     R"(func.func public @main(%x: tensor<3x64x16xf64>, %w: tensor<3x16x8xf64>) -> tensor<3x64x8xf64> {
      %y = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1]
        : (tensor<3x64x16xf64>, tensor<3x16x8xf64>) -> tensor<3x64x8xf64>
      return %y : tensor<3x64x8xf64>
    })"},
    {"elements", R"(func.func public @main(%x: tensor<40x7xf32>) -> tensor<40x7xf32> {
      %a = stablehlo.exponential %x : tensor<40x7xf32>
      %b = stablehlo.add %a, %x : tensor<40x7xf32>
      %c = stablehlo.power %b, %x : tensor<40x7xf32>
      %d = stablehlo.convert %c : (tensor<40x7xf32>) -> tensor<40x7xbf16>
      %e = stablehlo.convert %d : (tensor<40x7xbf16>) -> tensor<40x7xf32>
      %f = stablehlo.compare LT, %e, %x : (tensor<40x7xf32>, tensor<40x7xf32>) -> tensor<40x7xi1>
      %g = stablehlo.select %f, %e, %a : tensor<40x7xi1>, tensor<40x7xf32>
      return %g : tensor<40x7xf32>
    })"},
    {"sum", R"(func.func public @main(%x: tensor<64x128xf32>) -> tensor<64xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
      return %y : tensor<64xf32>
    })"},
    {"convolution",
     R"(func.func public @main(%x: tensor<2x3x16x16xf32>, %k: tensor<8x3x3x5xf32>) -> tensor<2x8x8x16xf32> {
      %y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {stride = [2, 1], pad = [[1, 1], [2, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x3x16x16xf32>, tensor<8x3x3x5xf32>) -> tensor<2x8x8x16xf32>
      return %y : tensor<2x8x8x16xf32>
    })"},
    {"convolution of a dilated base",
     R"(func.func public @main(%x: tensor<1x2x9xf32>, %k: tensor<4x2x3xf32>) -> tensor<1x4x17xf32> {
      %y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
        window = {pad = [[1, 1]], lhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x2x9xf32>, tensor<4x2x3xf32>) -> tensor<1x4x17xf32>
      return %y : tensor<1x4x17xf32>
    })"},
    {"slices",
     R"(func.func public @main(%x: tensor<64x128xf32>, %i: tensor<i32>) -> tensor<64x128xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %part = stablehlo.dynamic_slice %x, %i, %zero, sizes = [3, 128]
        : (tensor<64x128xf32>, tensor<i32>, tensor<i32>) -> tensor<3x128xf32>
      %new = stablehlo.cosine %part : tensor<3x128xf32>
      %y = stablehlo.dynamic_update_slice %x, %new, %i, %zero
        : (tensor<64x128xf32>, tensor<3x128xf32>, tensor<i32>, tensor<i32>) -> tensor<64x128xf32>
      return %y : tensor<64x128xf32>
    })"},
    {"loop", R"(func.func public @main(%x: tensor<32x32xf32>) -> tensor<32x32xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %y:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<32x32xf32>
      cond {
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %more = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %i, %one : tensor<i32>
        %d = stablehlo.dot_general %c, %c, contracting_dims = [1] x [0]
          : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
        stablehlo.return %next, %d : tensor<i32>, tensor<32x32xf32>
      }
      return %y#1 : tensor<32x32xf32>
    })"},
    {"pooling", R"(func.func public @main(%x: tensor<64x128xf32>) -> tensor<32x64xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %y = "stablehlo.reduce_window"(%x, %zero) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}
        : (tensor<64x128xf32>, tensor<f32>) -> tensor<32x64xf32>
      return %y : tensor<32x64xf32>
    })"},
    {"sort", R"(func.func public @main(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
      %y = "stablehlo.sort"(%x) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %s : tensor<i1>
      }) {dimension = 1 : i64, is_stable = true} : (tensor<8x100xf32>) -> tensor<8x100xf32>
      return %y : tensor<8x100xf32>
    })"},
    {"transform",
     R"(func.func public @main(%x: tensor<4x64xcomplex<f32>>) -> tensor<4x64xcomplex<f32>> {
      %y = stablehlo.fft %x, type = FFT, length = [64] : (tensor<4x64xcomplex<f32>>) -> tensor<4x64xcomplex<f32>>
      return %y : tensor<4x64xcomplex<f32>>
    })"},
};

TEST(PjrtCosts, TheyAreWhatTheRuntimeCountsWhereItCounts) {
  PjrtOptions options;
  options.plugin_path = SourcePath(GANGWAY_TEST_OLDER_PLUGIN);
  options.device_count = 1;
  const auto backend = OpenPjrt(options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (const Counted& each : kPrograms) {
    const TestProgram program = Mlir(each.body);
    const auto executable =
        (*backend)->Compile({program.code, program.format}, program.compile_options, {});
    ASSERT_TRUE(executable.ok()) << each.name << ": " << executable.status();
    const auto counted = (*executable)->GetCostAnalysis();
    ASSERT_TRUE(counted.ok()) << each.name << ": " << counted.status();
    const std::map<std::string, double> theirs(counted->begin(), counted->end());
    const auto optimized = (*executable)->OptimizedProgram();
    ASSERT_TRUE(optimized.ok()) << each.name << ": " << optimized.status();
    const auto instructions = xla::ParseInstructions(*optimized);
    ASSERT_TRUE(instructions.ok()) << each.name << ": " << instructions.status();
    const auto ours = xla::AnalyzeCosts(*instructions);
    ASSERT_TRUE(ours.ok()) << each.name << ": " << ours.status();
    auto at = [&theirs](const char* name) {
      const auto found = theirs.find(name);
      return found == theirs.end() ? 0 : found->second;
    };
    EXPECT_EQ(ours->flops, at("flops")) << each.name;
    EXPECT_EQ(ours->transcendentals, at("transcendentals")) << each.name;
    // XLA counts the addresses in tuples, too.
    EXPECT_NEAR(ours->bytes_accessed, at("bytes accessed"), 64) << each.name;
  }
}

}  // namespace
}  // namespace gangway::device
