// What a request holds after its check: HLO that was checked, or its own StableHLO where HLO says less.
#include "gangway/compiler/checked_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/compiler/compiler_test_util.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {
namespace {

using ::testing::HasSubstr;

// A program of one parameter and one result, both of this type.
std::string Negates(const std::string& attributes, const std::string& type = "4xf32") {
  return absl::StrCat("module @negates { func.func public @main(%x: tensor<", type, ">", attributes,
                      ") -> tensor<", type, "> { %y = stablehlo.negate %x : tensor<", type,
                      "> return %y : tensor<", type, "> } }");
}

std::string Sorts(const std::string& direction) {
  return absl::StrCat(R"(
module @sorts {
  func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
    %y = "stablehlo.sort"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare )",
                      direction, R"(, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) {dimension = 0 : i64, is_stable = false} : (tensor<64xf32>) -> tensor<64xf32>
    return %y : tensor<64xf32>
  }
})");
}

wire::CompileRequest CheckedRequest(std::string program) {
  wire::CompileRequest request = Request(1, std::move(program), 1);
  const absl::Status checked = CheckRequest(Backend(), request, {.platform = "cpu"});
  EXPECT_TRUE(checked.ok()) << checked;
  return request;
}

xla::hlo::Module ModuleOf(const wire::CompileRequest& request) {
  xla::hlo::Module module;
  EXPECT_EQ(request.format(), "hlo");
  EXPECT_TRUE(module.ParseFromString(request.program()));
  return module;
}

bool IsStable(const xla::hlo::Module& module) {
  for (const auto& computation : module.computations())
    for (const auto& each : computation.instructions())
      if (each.opcode() == "sort") return each.is_stable();
  ADD_FAILURE() << "no sort";
  return false;
}

TEST(CheckedProgram, StablehloBecomesTheHloThatWasChecked) {
  const xla::hlo::Module module = ModuleOf(CheckedRequest(Negates("")));
  ASSERT_EQ(module.computations_size(), 1);
  EXPECT_EQ(module.computations(0).instructions(1).opcode(), "negate");
}

TEST(CheckedProgram, StablehloStaysWhereItSaysMore) {
  for (const std::string& program :
       {Negates(R"( {mhlo.layout_mode = "default"})"), Negates(R"( {mhlo.memory_kind = "device"})"),
        Negates("", "4xi4")}) {
    const wire::CompileRequest request = CheckedRequest(program);
    EXPECT_EQ(request.format(), "mlir");
    EXPECT_EQ(request.program(), program);
  }
}

TEST(CheckedProgram, AnotherFormatIsRefusedByName) {
  for (const char* format : {"hlo_with_config", "sim", "", "\xff"}) {
    wire::CompileRequest request = Request(1, Negates(""), 1);
    request.set_format(format);
    const absl::Status checked = CheckRequest(Backend(), request, {.platform = "cpu"});
    EXPECT_EQ(checked.code(), absl::StatusCode::kUnimplemented) << checked;
    EXPECT_THAT(std::string(checked.message()), HasSubstr("program format"));
  }
}

// XLA would end the process.
TEST(CheckedProgram, TuplesInTheInterfaceAreRefused) {
  const auto expect_refused = [](const xla::hlo::Module& module, const std::string& words) {
    wire::CompileRequest request = Request(1, module.SerializeAsString(), 1);
    request.set_format("hlo");
    const absl::Status checked = CheckRequest(Backend(), request, {.platform = "cpu"});
    EXPECT_EQ(checked.code(), absl::StatusCode::kUnimplemented) << checked;
    EXPECT_THAT(std::string(checked.message()), HasSubstr(words));
  };
  const auto tuple_of = [](const xla::hlo::Shape& part) {
    xla::hlo::Shape tuple;
    tuple.set_element_type(xla::TYPE_TUPLE);
    *tuple.add_tuple_shapes() = part;
    return tuple;
  };
  xla::hlo::Module module = ModuleOf(CheckedRequest(Negates("")));
  auto& entry = *module.mutable_computations(0);
  const xla::hlo::Shape tuple = tuple_of(entry.instructions(0).shape());

  xla::hlo::Module takes = module;
  auto& computation = *takes.mutable_computations(0);
  *computation.mutable_instructions(0)->mutable_shape() = tuple;
  computation.mutable_instructions(1)->set_opcode("get-tuple-element");
  *computation.mutable_program_shape()->mutable_parameters(0) = tuple;
  *takes.mutable_host_program_shape()->mutable_parameters(0) = tuple;
  expect_refused(takes, "A parameter of the program is a tuple");

  entry.mutable_instructions(1)->set_opcode("tuple");
  *entry.mutable_instructions(1)->mutable_shape() = tuple;
  auto& root = *entry.add_instructions() = entry.instructions(1);
  root.set_id(root.id() + 1);
  root.set_operand_ids(0, entry.root_id());
  *root.mutable_shape() = tuple_of(tuple);
  entry.set_root_id(root.id());
  *entry.mutable_program_shape()->mutable_result() = root.shape();
  *module.mutable_host_program_shape()->mutable_result() = root.shape();
  expect_refused(module, "a tuple of tuples");
}

// XLA's partitioner would end the process.
TEST(CheckedProgram, AListOfOptionsThatDoesNotFitTheProgramIsRefused) {
  const auto check = [](int parameters, int results) {
    wire::CompileRequest request = Request(1, Negates(""), 2);
    xla::CompileOptionsProto options;
    EXPECT_TRUE(options.ParseFromString(request.options()));
    auto& build = *options.mutable_executable_build_options();
    for (int i = 0; i < parameters; ++i)
      build.add_allow_spmd_sharding_propagation_to_parameters(true);
    for (int i = 0; i < results; ++i) build.add_allow_spmd_sharding_propagation_to_output(true);
    request.set_options(options.SerializeAsString());
    return CheckRequest(Backend(), request, {.platform = "cpu"});
  };
  EXPECT_EQ(check(1, 1), absl::OkStatus());
  EXPECT_THAT(std::string(check(3, 1).message()),
              HasSubstr("propagation_to_parameters' is refused: it has 3 elements"));
  EXPECT_THAT(std::string(check(1, 2).message()),
              HasSubstr("propagation_to_output' is refused: it has 2 elements"));
}

TEST(CheckedProgram, HloThatBreaksARuleIsRefused) {
  wire::CompileRequest request = CheckedRequest(Negates(""));
  xla::hlo::Module module = ModuleOf(request);
  module.mutable_computations(0)->mutable_instructions(1)->mutable_shape()->set_dimensions(0, 4000);
  module.SerializeToString(request.mutable_program());
  const absl::Status checked = CheckRequest(Backend(), request, {.platform = "cpu"});
  EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument) << checked;
  EXPECT_THAT(std::string(checked.message()), HasSubstr("negate"));
}

TEST(CheckedProgram, CallsWithoutARuleAreRefusedByTheirTarget) {
  wire::CompileRequest request = Request(1, R"(
module @calls {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.custom_call @some_target(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
})",
                                         1);
  const absl::Status checked = CheckRequest(Backend(), request, {.platform = "cpu"});
  EXPECT_EQ(checked.code(), absl::StatusCode::kUnimplemented) << checked;
  EXPECT_THAT(std::string(checked.message()), HasSubstr("some_target"));
}

// XLA's unstable sort leaves its arrays under a comparator that is no strict order; the stable one does not.
TEST(CheckedProgram, SortsByWhatIsNoOrderBecomeStable) {
  EXPECT_FALSE(IsStable(ModuleOf(CheckedRequest(Sorts("LT")))));
  EXPECT_TRUE(IsStable(ModuleOf(CheckedRequest(Sorts("LE")))));
}

}  // namespace
}  // namespace gangway::compiler
