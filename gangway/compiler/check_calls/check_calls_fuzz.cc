// Modules of one call, mutated field by field: each is refused or passes, and what passes keeps to what its target's
// handler would read and write.
#include <algorithm>
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/compiler/check_calls/check_calls_test_util.h"
#include "gangway/xla/fuzz_message.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  using compiler::calls::Array;
  using compiler::calls::F32;
  using compiler::calls::Tuple;
  namespace xla = gangway::xla;
  std::vector<std::string> seeds;
  seeds.push_back(compiler::calls::ModuleOf("TopK", {F32({3, 8})},
                                            Tuple({F32({3, 2}), Array(xla::TYPE_S32, {3, 2})}))
                      .SerializeAsString());
  xla::hlo::Module border =
      compiler::calls::ModuleOf("SPMDFullToShardShape", {F32({8, 8})}, F32({8, 8}));
  border.mutable_computations(0)->mutable_instructions(0)->mutable_sharding();
  compiler::calls::CallOf(border).mutable_sharding()->set_type(4);
  seeds.push_back(border.SerializeAsString());
  xla::hlo::Module sharding = compiler::calls::ModuleOf("Sharding", {F32({8})}, F32({8}));
  compiler::calls::CallOf(sharding).mutable_sharding();
  seeds.push_back(sharding.SerializeAsString());
  seeds.push_back(compiler::calls::TypedModuleOf("xla_ffi_python_cpu_callback", {F32({4})},
                                                 F32({4}), "{callback = 1 : i64}")
                      .SerializeAsString());
  seeds.push_back(compiler::calls::TypedModuleOf(
                      "lapack_sgtsv_ffi", {F32({4}), F32({4}), F32({4}), F32({4, 1})},
                      Tuple({F32({4}), F32({4}), F32({4}), F32({4, 1}), Array(xla::TYPE_S32, {})}),
                      "")
                      .SerializeAsString());
  return seeds;
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string mutated = gangway::xla::MutatedMessage<gangway::xla::hlo::Module>(
      gangway::fuzz::View(data, size), random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace xla = gangway::xla;
  xla::hlo::Module module;
  if (!module.ParseFromString(std::string(gangway::fuzz::View(data, size)))) return 0;
  if (module.computations().empty() || module.computations(0).instructions().empty()) return 0;
  const auto& instructions = module.computations(0).instructions();
  const auto& call = instructions[instructions.size() - 1];
  for (const char* platform : {"cpu", "cuda"}) {
    if (!gangway::compiler::calls::CheckCallOf(module, platform).ok()) continue;
    if (call.custom_call_target() == "TopK") {
      const auto& operand = instructions[0].shape().dimensions();
      const auto& values = call.shape().tuple_shapes(0).dimensions();
      GANGWAY_CHECK(values[values.size() - 1] <= operand[operand.size() - 1],
                    "no more values than there are");
    }
    if (call.custom_call_target() == "Sharding")
      GANGWAY_CHECK(
          std::ranges::equal(call.shape().dimensions(), instructions[0].shape().dimensions()),
          "a sharding changes no shape");
  }
  return 0;
}
