// Programs whose shardings are propagated, as XLA writes a client's: any module is cut or refused, also with itself as
// the client's answer to what it asks.
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/compiler/sharded_calls.h"
#include "gangway/compiler/sharded_calls_test_util.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/sharded_calls.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  using collective::F32;
  using compiler::Tiled;
  const auto array = F32({16, 4, 4});
  const auto both = collective::TupleOf({array, F32({16})});
  const auto cut = Tiled({4, 1, 1}, 2);
  std::vector<std::string> seeds;
  seeds.push_back(compiler::ModuleWithCall("lapack_spotrf_ffi", array, Tiled({4, 2, 1}), both,
                                           compiler::TupleSharding({cut, Tiled({4}, 2)}), "1")
                      .SerializeAsString());
  seeds.push_back(compiler::ModuleWithCall("xla_ffi_partitioned_python_cpu_callback", array, cut,
                                           collective::TupleOf({}), {})
                      .SerializeAsString());
  seeds.push_back(
      compiler::ModuleWithCall("lapack_none", array, cut, collective::TupleOf({}), cut, "1")
          .SerializeAsString());
  for (const std::string_view target : {xla::kPartitionTarget, xla::kInspectTarget})
    seeds.push_back(
        compiler::ModuleWithCall(std::string(target), array, cut, array, cut).SerializeAsString());
  return seeds;
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string mutated = gangway::xla::MutatedMessage<gangway::xla::HloModuleEditProto>(
      gangway::fuzz::View(data, size), random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gangway::xla::HloModuleEditProto module;
  if (!module.ParseFromString(std::string(gangway::fuzz::View(data, size)))) return 0;
  const gangway::xla::HloModuleEditProto whole = module;
  const auto asks = gangway::compiler::Cut(module, 8, {});
  if (!asks.ok()) return 0;
  gangway::xla::PartitionedCall answer;
  if (asks->asked.calls_size() > 0) {
    *answer.mutable_operand_shardings() = asks->asked.calls(0).operand_shardings();
    *answer.mutable_result_sharding() = asks->asked.calls(0).result_sharding();
  }
  const std::vector<gangway::compiler::CallAnswer> answers(
      static_cast<size_t>(asks->asked.calls_size()), {&whole, &answer});
  module = whole;
  const auto cut = gangway::compiler::Cut(module, 8, answers);
  GANGWAY_CHECK(!cut.ok() || cut->asked.calls_size() == asks->asked.calls_size(),
                "the same calls ask when they are answered");
  return 0;
}
