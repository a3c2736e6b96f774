// StableHLO programs and compile options of the PJRT tests, written by hand: small enough to read.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_TEST_PROGRAMS_H_
#define GANGWAY_DEVICE_PJRT_PJRT_TEST_PROGRAMS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "gangway/base/package.h"
#include "gangway/device/conformance/conformance.h"
#include "gangway/device/conformance/device_test_util.h"
#include "gangway/device/pjrt/pjrt_backend.h"

namespace gangway::device {

inline void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

// A serialized xla.CompileOptionsProto: only what the tests need.
inline std::string TestCompileOptions(int num_replicas, int num_partitions) {
  std::string build;
  auto field = [&build](int number, uint64_t value) {
    AppendVarint(build, static_cast<uint64_t>(number) << 3);
    AppendVarint(build, value);
  };
  field(1, ~uint64_t{0});  // device_ordinal: any
  field(4, num_replicas);
  field(5, num_partitions);
  field(6, num_partitions > 1);  // use_spmd_partitioning
  std::string options = "\x1a";  // field 3, executable_build_options
  AppendVarint(options, build.size());
  return options + build;
}

inline TestProgram Mlir(const std::string& body, int num_replicas = 1, int num_partitions = 1) {
  return {
      absl::Substitute(
          "module @test attributes {mhlo.num_replicas = $0 : i32, mhlo.num_partitions = $1 : i32} "
          "{\n$2\n}\n",
          num_replicas, num_partitions, body),
      "mlir", TestCompileOptions(num_replicas, num_partitions)};
}

inline TestProgram UnaryProgram() {
  return Mlir(R"(func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.add %x, %one : tensor<4xf32>
    return %y : tensor<4xf32>
  })");
}

inline TestProgram BinaryProgram() {
  return Mlir(
      R"(func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>)
      -> (tensor<4xf32>, tensor<4xf32>) {
    %sum = stablehlo.add %x, %y : tensor<4xf32>
    %product = stablehlo.multiply %x, %y : tensor<4xf32>
    return %sum, %product : tensor<4xf32>, tensor<4xf32>
  })");
}

inline TestProgram DonatingProgram() {
  return Mlir(
      R"(func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %y = stablehlo.add %x, %x : tensor<4xf32>
    return %y : tensor<4xf32>
  })");
}

// x has one element per partition. Element i of the result is x[i] + sum(x) + 1000 i: one
// all-reduce, and a term for the position.
inline TestProgram GangProgram(int count) {
  return Mlir(
      absl::Substitute(
          R"(func.func public @main(%x: tensor<$0xf32> {mhlo.sharding = "{devices=[$0]<=[$0]}"})
      -> (tensor<$0xf32> {mhlo.sharding = "{devices=[$0]<=[$0]}"}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<$0xf32>, tensor<f32>) -> tensor<f32>
    %all = stablehlo.broadcast_in_dim %sum, dims = [] : (tensor<f32>) -> tensor<$0xf32>
    %place = stablehlo.iota dim = 0 : tensor<$0xf32>
    %thousand = stablehlo.constant dense<1000.0> : tensor<$0xf32>
    %shift = stablehlo.multiply %place, %thousand : tensor<$0xf32>
    %z = stablehlo.add %x, %all : tensor<$0xf32>
    %y = stablehlo.add %z, %shift : tensor<$0xf32>
    return %y : tensor<$0xf32>
  })",
          count),
      1, count);
}

#ifdef GANGWAY_TEST_PJRT_PLUGIN  // only for tests that run beside the sources
inline absl::StatusOr<std::unique_ptr<Backend>> OpenTestPlugin(int device_count) {
  PjrtOptions options;
  options.plugin_path = SourcePath(GANGWAY_TEST_PJRT_PLUGIN);
  options.device_count = device_count;
  return OpenPjrt(options);
}
#endif

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_TEST_PROGRAMS_H_
