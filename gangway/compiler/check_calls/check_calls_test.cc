// Targets without a rule, and rules of calls that JAX does not make in the tests of jax_calls_test.cc.
#include "gangway/compiler/check_calls/check_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/compiler/check_calls/check_calls_test_util.h"

namespace gangway::compiler::calls {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using xla::hlo::Module;

void ExpectRefused(const Module& module, const std::string& why) {
  const absl::Status status = CheckCallOf(module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(status.ToString(), HasSubstr(why));
}

// --- Targets without a rule ---

TEST(CheckCalls, UnknownTargetsAreRefusedByNameWithWhatToDo) {
  const struct {
    const char* target;
    const char* advice;
  } cases[] = {
      {"nobodys_ffi", "jax.devices(\"host\")"},
      {"", "jax.devices(\"host\")"},
      {"xla_buffer_python_cpu_callback", "jax.pure_callback"},
      {"xla_python_cpu_callback", "jax.pure_callback"},
      {"xla_ffi_python_gpu_callback", "jax.pure_callback"},
      {"AllocateBuffer", "jnp.zeros"},
      {"CreateBuffer", "jnp.zeros"},
      {"PadToStatic", "fixed shapes"},
      {"SliceToDynamic", "fixed shapes"},
      {"stablehlo.dynamic_top_k", "fixed shapes"},
      {"tpu_custom_call", "interpret=True"},
      {"__gpu$xla.gpu.triton", "interpret=True"},
      {"mosaic_gpu_v2", "interpret=True"},
      {"__cudnn$fmhaSoftmax", "implementation=\"xla\""},
      {"__xla_cpu_runtime_TopKF32", "jax.devices(\"host\")"},
      {"__onednn$matmul", "jax.devices(\"host\")"},
      {"__ynn_fusion", "jax.devices(\"host\")"},
      {"PartialReduce", "jax.devices(\"host\")"},
      {"MoveToHost", "jax.devices(\"host\")"},
      {"cusolver_potrf_ffi", "jax.devices(\"host\")"},
  };
  for (const auto& each : cases) {
    const absl::Status status = CheckCallOf(ModuleOf(each.target, {F32({4})}, F32({4})));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << each.target;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr(each.target), HasSubstr(each.advice)));
  }
}

TEST(CheckCalls, TargetsOfTheLoweringAreNoProgramsToCall) {
  for (const char* target : {"gangway.collective", "gangway.position"}) {
    const absl::Status status = CheckCallOf(ModuleOf(target, {F32({4})}, F32({4})));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr(target), HasSubstr("no program may call")));
  }
}

TEST(CheckCalls, NamesThatPeopleSeeArePrintableAndShort) {
  const std::string target = "a\x1b[2J\n" + std::string(5000, 'x');
  const std::string text = CheckCallOf(ModuleOf(target, {}, F32({}))).ToString();
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")), HasSubstr("a?[2J?xx")));
  EXPECT_LT(text.size(), 500u);
}

TEST(CheckCalls, NoPlatformHasNoTargets) {
  EXPECT_EQ(CheckCallOf(ModuleOf("TopK", {F32({4})}, F32({4})), "none").code(),
            absl::StatusCode::kUnimplemented);
}

// --- TopK ---

Module TopK(int64_t rows, int64_t n, int64_t k) {
  return ModuleOf("TopK", {F32({rows, n})},
                  Tuple({F32({rows, k}), Array(xla::TYPE_S32, {rows, k})}));
}

TEST(TopK, TakesAsManyAsThereAre) {
  EXPECT_TRUE(CheckCallOf(TopK(3, 8, 1)).ok());
  EXPECT_TRUE(CheckCallOf(TopK(3, 8, 8)).ok());
  ExpectRefused(TopK(3, 8, 9), "takes 9 of 8");
  ExpectRefused(TopK(3, 8, 0), "takes 0 of 8");
}

TEST(TopK, HasOneIndexForEachValue) {
  Module module = TopK(3, 8, 2);
  CallOf(module).mutable_shape()->mutable_tuple_shapes(1)->set_dimensions(1, 4);
  ExpectRefused(module, "one index for each value");
  module = TopK(3, 8, 2);
  CallOf(module).mutable_shape()->mutable_tuple_shapes(0)->set_dimensions(0, 4);
  ExpectRefused(module, "number of rows");
  module = TopK(3, 8, 2);
  CallOf(module).mutable_shape()->mutable_tuple_shapes(1)->set_element_type(xla::TYPE_S64);
  ExpectRefused(module, "f32 and s32");
}

TEST(TopK, IsOfF32RowsInRowMajorOrder) {
  Module module = TopK(3, 8, 2);
  module.mutable_computations(0)->mutable_instructions(0)->mutable_shape()->set_element_type(
      xla::TYPE_F64);
  ExpectRefused(module, "not f32");
  module = TopK(3, 8, 2);
  auto& order = *module.mutable_computations(0)
                     ->mutable_instructions(0)
                     ->mutable_shape()
                     ->mutable_layout()
                     ->mutable_minor_to_major();
  std::swap(order[0], order[1]);
  ExpectRefused(module, "row-major");
  ExpectRefused(
      ModuleOf("TopK", {F32({2, 3, 8})}, Tuple({F32({2, 3, 1}), Array(xla::TYPE_S32, {2, 3, 1})})),
      "one or two dimensions");
}

TEST(TopK, IsOfNoScalar) {
  ExpectRefused(ModuleOf("TopK", {F32({})}, Tuple({F32({}), Array(xla::TYPE_S32, {})})),
                "one or two dimensions");
}

TEST(TopK, MayNameItsComparator) {
  Module module = TopK(3, 8, 2);
  auto& comparator = *module.add_computations();
  comparator.set_id(2);
  for (int i = 0; i < 2; ++i) *comparator.mutable_program_shape()->add_parameters() = F32({});
  *comparator.mutable_program_shape()->mutable_result() = Array(xla::TYPE_PRED, {});
  CallOf(module).add_called_computation_ids(2);
  EXPECT_TRUE(CheckCallOf(module).ok()) << CheckCallOf(module);
  *module.mutable_computations(1)->mutable_program_shape()->mutable_result() = F32({});
  ExpectRefused(module, "pred");
  CallOf(module).set_called_computation_ids(0, 3);
  ExpectRefused(module, "does not have");
}

// --- Host callbacks ---

Module HostCall(const std::string& config) {
  return TypedModuleOf("xla_ffi_python_cpu_callback", {F32({2, 3})}, Tuple({F32({2, 3})}), config);
}

TEST(HostCalls, CarryTheirNumberAlone) {
  EXPECT_TRUE(CheckCallOf(HostCall("{callback = 1 : i64}")).ok());
  ExpectRefused(HostCall("{index = 0 : ui64}"), "gangway run --door pjrt");
  ExpectRefused(HostCall("{callback = 1 : i64, index = 0 : ui64}"), "no number");
  ExpectRefused(HostCall("{callback = 0 : i64}"), "positive i64");
  ExpectRefused(HostCall("{callback = 1 : i32}"), "positive i64");
  ExpectRefused(HostCall("140237090925328"), "malformed");
  ExpectRefused(HostCall(""), "no number");
}

TEST(HostCalls, PassDenseArraysInRowMajorOrder) {
  Module module = HostCall("{callback = 1 : i64}");
  auto& layout = *CallOf(module).mutable_operand_shapes_with_layout(0)->mutable_layout();
  layout.set_minor_to_major(0, 0);
  layout.set_minor_to_major(1, 1);
  ExpectRefused(module, "row-major");
  module = HostCall("{callback = 1 : i64}");
  CallOf(module).mutable_shape()->mutable_tuple_shapes(0)->mutable_layout()->set_memory_space(5);
  ExpectRefused(module, "layout with tiles or padding");
  module = HostCall("{callback = 1 : i64}");
  CallOf(module).set_constrain_layout(false);
  ExpectRefused(module, "operand_layouts");
  module = HostCall("{callback = 1 : i64}");
  *CallOf(module).mutable_shape()->mutable_tuple_shapes(0) = Tuple({F32({})});
  ExpectRefused(module, "no array");
}

TEST(HostCalls, OfShardsYieldNothing) {
  const std::string target = "xla_ffi_partitioned_python_cpu_callback";
  EXPECT_TRUE(
      CheckCallOf(TypedModuleOf(target, {F32({4})}, Tuple({}), "{callback = 1 : i64}")).ok());
  ExpectRefused(TypedModuleOf(target, {F32({4})}, F32({4}), "{callback = 1 : i64}"), "results");
}

TEST(HostCalls, OfGpusAreOnGpus) {
  const Module module =
      TypedModuleOf("xla_ffi_python_gpu_callback", {F32({4})}, F32({4}), "{callback = 1 : i64}");
  EXPECT_TRUE(CheckCallOf(module, "cuda").ok());
  EXPECT_EQ(CheckCallOf(module, "cpu").code(), absl::StatusCode::kUnimplemented);
}

// --- Simulated work ---

TEST(SimulatedWork, IsForClustersThatHaveIt) {
  const auto work = [](const std::string& config, int64_t result) {
    return TypedModuleOf("gangway_simulated_work", {F32({}), F32({4})},
                         Tuple({F32({}), F32({result})}), config);
  };
  const Module module = work("{microseconds = 5 : i64}", 4);
  EXPECT_TRUE(CheckCallOf(module, "cpu", 8, /*simulates_work=*/true).ok());
  ExpectRefused(module, "GANGWAY_SIMULATED_WORK=1");
  for (const Module& other : {work("{microseconds = 10000001 : i64}", 4),
                              work("{microseconds = 5 : i64}", 5), work("{}", 4)})
    EXPECT_FALSE(CheckCallOf(other, "cpu", 8, /*simulates_work=*/true).ok());
}

// --- LAPACK, what no call of JAX's is one change away from ---

Module Matrix(const std::string& target, std::vector<int64_t> dims, const std::string& config) {
  xla::hlo::Shape matrix = F32(dims);
  auto& order = *matrix.mutable_layout()->mutable_minor_to_major();
  std::swap(order[0], order[1]);
  dims.resize(dims.size() - 2);
  Module module =
      TypedModuleOf(target, {matrix}, Tuple({matrix, Array(xla::TYPE_S32, dims)}), config);
  return module;
}

TEST(Lapack, MatricesHaveThirtyTwoBitSizes) {
  EXPECT_TRUE(CheckCallOf(Matrix("lapack_spotrf_ffi", {4, 4}, "{uplo = 76 : ui8}")).ok());
  ExpectRefused(
      Matrix("lapack_spotrf_ffi", {int64_t{1} << 31, int64_t{1} << 31}, "{uplo = 76 : ui8}"),
      "does not fit");
}

TEST(Lapack, EmptyMatricesAreNotReordered) {
  ExpectRefused(Matrix("lapack_spotrf_ffi", {2, 0, 0}, "{uplo = 76 : ui8}"), "empty");
}

TEST(Lapack, ModesDecideTheSizesOfTheVectors) {
  const auto svd = [](int64_t u, int64_t v, const std::string& mode) {
    const auto columns = [](std::vector<int64_t> dims) {
      xla::hlo::Shape shape = F32(dims);
      auto& order = *shape.mutable_layout()->mutable_minor_to_major();
      std::swap(order[0], order[1]);
      return shape;
    };
    return TypedModuleOf("lapack_sgesdd_ffi", {columns({5, 3})},
                         Tuple({columns({5, 3}), F32({3}), columns({5, u}), columns({v, 3}),
                                Array(xla::TYPE_S32, {})}),
                         "{mode = " + mode + " : ui8}");
  };
  EXPECT_TRUE(CheckCallOf(svd(5, 3, "65")).ok()) << CheckCallOf(svd(5, 3, "65"));
  EXPECT_TRUE(CheckCallOf(svd(3, 3, "83")).ok());
  EXPECT_TRUE(CheckCallOf(svd(3, 3, "78")).ok());
  EXPECT_TRUE(CheckCallOf(svd(5, 3, "78")).ok());
  for (const Module& other : {svd(3, 3, "65"), svd(5, 3, "83"), svd(4, 3, "78"), svd(5, 3, "79")})
    EXPECT_FALSE(CheckCallOf(other).ok());
}

// --- Device code ---

TEST(DeviceCode, OfACudnnGraphIsOneComputation) {
  Module module = TypedModuleOf("__cudnn$fusion", {F32({4})}, F32({4}), "");
  EXPECT_EQ(CheckCallOf(module, "cuda").code(), absl::StatusCode::kInvalidArgument);
  CallOf(module).add_called_computation_ids(1);
  EXPECT_TRUE(CheckCallOf(module, "cuda").ok());
  EXPECT_EQ(CheckCallOf(module, "cpu").code(), absl::StatusCode::kUnimplemented);
}

TEST(DeviceCode, IsAllowedOnItsPlatformByNameAlone) {
  for (const char* target :
       {"__gpu$xla.gpu.triton", "mosaic_gpu_v2", "__cudnn$fmhaSoftmax", "triton_kernel_call_ffi"}) {
    Module module = TypedModuleOf(target, {F32({4})}, F32({4}), "any");
    EXPECT_TRUE(CheckCallOf(module, "cuda").ok()) << target;
    EXPECT_EQ(CheckCallOf(module, "cpu").code(), absl::StatusCode::kUnimplemented);
    CallOf(module).add_output_operand_aliasing();
    EXPECT_TRUE(CheckCallOf(module, "cuda").ok()) << target;
    *CallOf(module).mutable_shape() = F32({5});
    EXPECT_EQ(CheckCallOf(module, "cuda").code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gangway::compiler::calls
