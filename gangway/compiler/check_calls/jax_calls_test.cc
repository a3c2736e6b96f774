// The calls of JAX's lowerings (testdata/jax_calls.txt, which tools/custom_calls.py writes): each passes its rule, and
// each change of what its handler assumes is refused by the name of its target.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/compiler/check_calls/check_calls_test_util.h"

namespace gangway::compiler::calls {
namespace {

using ::testing::HasSubstr;
using xla::hlo::Instruction;
using xla::hlo::Module;

struct JaxCall {
  std::string platform;
  int64_t partitions = 0;
  Module module;

  absl::Status Check() const { return Check(module); }
  absl::Status Check(const Module& changed) const {
    return CheckCallOf(changed, platform, partitions);
  }

  std::string target() const { return const_call().custom_call_target(); }
  const Instruction& const_call() const {
    const auto& instructions = module.computations(0).instructions();
    return instructions[instructions.size() - 1];
  }
};

std::vector<JaxCall> ReadCalls() {
  const char* const other = std::getenv("GANGWAY_JAX_CALLS");
  std::ifstream file(other != nullptr ? other : GANGWAY_JAX_CALLS);
  std::vector<JaxCall> calls;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    JaxCall& call = calls.emplace_back();
    words >> call.platform >> call.partitions;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        line.substr(static_cast<size_t>(words.tellg())), &call.module))
        << line;
  }
  return calls;
}

const std::vector<JaxCall>& AllCalls() {
  static const auto* const calls = new std::vector<JaxCall>(ReadCalls());
  return *calls;
}

bool IsLinalg(const std::string& target) {
  for (const std::string_view prefix :
       {"lapack_", "cusolver_", "cusparse_", "cuhybrid_", "cu_", "tridiagonal_"})
    if (target.starts_with(prefix)) return true;
  return false;
}

TEST(JaxCalls, AllPass) {
  std::set<std::string> targets;
  for (const JaxCall& call : AllCalls()) {
    targets.insert(call.target());
    EXPECT_TRUE(call.Check().ok()) << call.Check() << "\n" << call.module.ShortDebugString();
  }
  if (std::getenv("GANGWAY_JAX_CALLS") != nullptr) return;
  EXPECT_GT(targets.size(), 90u) << "the data has calls of all of LAPACK's and cuSOLVER's targets";
}

TEST(JaxCalls, OnAnotherPlatformAreRefusedByName) {
  for (const JaxCall& call : AllCalls()) {
    if (!IsLinalg(call.target())) continue;
    const std::string other = call.platform == "cpu" ? "cuda" : "cpu";
    const absl::Status status = CheckCallOf(call.module, other, call.partitions);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << call.target();
    EXPECT_THAT(status.ToString(), HasSubstr(call.target()));
  }
}

// Changes that no target's rule allows.
TEST(JaxCalls, WithForeignPropertiesAreRefused) {
  const std::vector<std::function<void(Instruction&)>> changes = {
      [](Instruction& call) { call.set_custom_call_api_version(3); },
      [](Instruction& call) { call.set_custom_call_schedule(1); },
      [](Instruction& call) { call.mutable_literal(); },
      [](Instruction& call) { call.mutable_window(); },
      [](Instruction& call) { call.set_feature_group_count(2); },
      [](Instruction& call) { call.add_called_computation_ids(1); },
      [](Instruction& call) {
        auto& alias = *call.add_output_operand_aliasing();
        alias.add_output_shape_index(77);
      },
      [](Instruction& call) {
        auto& alias = *call.add_output_operand_aliasing();
        alias.set_operand_index(-1);
      },
  };
  for (const JaxCall& call : AllCalls()) {
    for (size_t i = 0; i < changes.size(); ++i) {
      Module module = call.module;
      changes[i](CallOf(module));
      const absl::Status status = call.Check(module);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << call.target() << " " << i;
      EXPECT_THAT(status.ToString(), HasSubstr(call.target()));
    }
  }
}

// Sets another shape for an operand, wherever the call has it.
void Reshape(Module& module, int operand, const std::function<void(xla::hlo::Shape&)>& change) {
  change(*module.mutable_computations(0)->mutable_instructions(operand)->mutable_shape());
  change(*CallOf(module).mutable_operand_shapes_with_layout(operand));
}

xla::hlo::Shape& ResultOf(Module& module, int result) {
  auto& shape = *CallOf(module).mutable_shape();
  return shape.element_type() == xla::TYPE_TUPLE ? *shape.mutable_tuple_shapes(result) : shape;
}

// Pivots may be fewer than rows, and reflectors than columns; the inner size of a product is free.
bool MayTakeMore(const std::string& target) {
  return target == "cu_lu_pivots_to_permutation" || target == "cusolver_syrk_ffi" ||
         target.find("gqr_ffi") != std::string::npos || target.find("mqr_ffi") != std::string::npos;
}

void ExpectRefused(const JaxCall& call, const Module& module, std::string_view what) {
  const absl::Status status = call.Check(module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << "\n"
                                                               << module.ShortDebugString();
  EXPECT_THAT(status.ToString(), HasSubstr(call.target()));
}

TEST(JaxCalls, OfLinearAlgebraWithAnotherOperandAreRefused) {
  for (const JaxCall& call : AllCalls()) {
    if (!IsLinalg(call.target())) continue;
    for (int i = 0; i < call.const_call().operand_ids_size(); ++i) {
      Module module = call.module;
      Reshape(module, i, [](auto& shape) { shape.set_element_type(xla::TYPE_BF16); });
      ExpectRefused(call, module, "type");
      for (int dim = 0; dim < call.const_call().operand_shapes_with_layout(i).dimensions_size();
           ++dim) {
        module = call.module;
        Reshape(module, i,
                [dim](auto& shape) { shape.set_dimensions(dim, shape.dimensions(dim) + 1); });
        if (!MayTakeMore(call.target())) ExpectRefused(call, module, "size");
      }
      module = call.module;
      CallOf(module).mutable_operand_shapes_with_layout(i)->add_dimensions(1);
      ExpectRefused(call, module, "layout of another shape");
      module = call.module;
      CallOf(module).mutable_operand_shapes_with_layout(i)->mutable_layout()->add_tiles();
      ExpectRefused(call, module, "tiles");
    }
    Module module = call.module;
    CallOf(module).clear_operand_shapes_with_layout();
    ExpectRefused(call, module, "no layouts");
    module = call.module;
    auto& main = *module.mutable_computations(0);
    main.mutable_instructions()->erase(main.mutable_instructions()->begin());
    ExpectRefused(call, module, "an operand less");
  }
}

TEST(JaxCalls, OfLinearAlgebraWithAnotherResultAreRefused) {
  for (const JaxCall& call : AllCalls()) {
    if (!IsLinalg(call.target())) continue;
    const auto& shape = call.const_call().shape();
    const int count = shape.element_type() == xla::TYPE_TUPLE ? shape.tuple_shapes_size() : 1;
    for (int i = 0; i < count; ++i) {
      Module module = call.module;
      ResultOf(module, i).set_element_type(xla::TYPE_BF16);
      ExpectRefused(call, module, "type");
      for (int dim = 0; dim < ResultOf(module, i).dimensions_size(); ++dim) {
        module = call.module;
        ResultOf(module, i).set_dimensions(dim, ResultOf(module, i).dimensions(dim) + 1);
        if (call.target() == "cu_lu_pivots_to_permutation" && dim == 1) continue;
        ExpectRefused(call, module, "size");
        if (dim == 0) continue;
        module = call.module;
        auto& order = *ResultOf(module, i).mutable_layout()->mutable_minor_to_major();
        std::swap(order[0], order[1]);
        ExpectRefused(call, module, "order");
      }
    }
    Module module = call.module;
    *CallOf(module).mutable_shape()->add_tuple_shapes() = F32({});
    CallOf(module).mutable_shape()->set_element_type(xla::TYPE_TUPLE);
    ExpectRefused(call, module, "a result more");
  }
}

TEST(JaxCalls, OfLinearAlgebraWithOtherAttributesAreRefused) {
  for (const JaxCall& call : AllCalls()) {
    if (!IsLinalg(call.target())) continue;
    const std::string config = call.const_call().backend_config();
    std::vector<std::string> others = {"{other = 1 : i32}", "not a dictionary",
                                       config.substr(0, config.size() - 1) + ", other = true}"};
    if (config != "{}" && !config.empty()) others.emplace_back("{}");
    if (const size_t letter = config.find(" : ui8"); letter != std::string::npos) {
      std::string wrong = config;
      wrong.replace(letter, 6, " : i8");
      others.push_back(wrong);
      if (config.find("algorithm") == std::string::npos)
        others.push_back(config.substr(0, config.rfind('=', letter)) + "= 63" +
                         config.substr(letter));
    }
    if (config.find("true") != std::string::npos)
      others.push_back(config.substr(0, config.find("true")) + "1 : ui8" +
                       config.substr(config.find("true") + 4));
    for (const std::string& other : others) {
      Module module = call.module;
      CallOf(module).set_backend_config(other);
      ExpectRefused(call, module, other);
    }
    if (call.target() == "cu_threefry2x32_ffi") continue;  // of any shape, all of it a batch
    Module module = call.module;
    (*CallOf(module).mutable_frontend_attributes()->mutable_map())["num_batch_dims"] = "7";
    ExpectRefused(call, module, "batch");
  }
}

TEST(JaxCalls, WithAnAliasOfUnequalShapesAreRefused) {
  int count = 0;
  for (const JaxCall& call : AllCalls()) {
    if (!IsLinalg(call.target()) || call.const_call().output_operand_aliasing().empty()) continue;
    Module module = call.module;
    auto& alias = *CallOf(module).mutable_output_operand_aliasing(0);
    alias.set_operand_index(alias.operand_index() + 1);
    ExpectRefused(call, module, "another operand");
    module = call.module;
    CallOf(module).mutable_output_operand_aliasing(0)->add_output_shape_index(0);
    ExpectRefused(call, module, "a part of a part");
    module = call.module;
    *CallOf(module).add_output_operand_aliasing() = CallOf(module).output_operand_aliasing(0);
    ExpectRefused(call, module, "twice");
    ++count;
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace gangway::compiler::calls
