// A client's program: any module is checked or refused, in bounded time and memory. What is taken keeps to what the
// rules promise each other: each shape is valid, and the changes that XLA needs make a program that is taken again.
#include <random>
#include <string>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/compiler/check/check_test_util.h"
#include "gangway/compiler/check/shapes.h"
#include "gangway/xla/fuzz_message.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  using namespace compiler;
  std::vector<hlo::Module> modules;
  modules.push_back(OneOp("add", F32({2, 3}), {F32({2, 3}), F32({2, 3})}));
  modules.push_back(OneOp("sort", S32({8}), {S32({8})},
                          [](hlo::Instruction& sort) { sort.add_dimensions(0); },
                          {Comparing("LT", "SIGNED", xla::TYPE_S32)}));
  modules.push_back(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})},
                          [](hlo::Instruction& reduce) { reduce.add_dimensions(0); }, {Adder()}));
  modules.push_back(
      OneOp("gather", F32({5, 4}), {F32({9, 4}), S32({5, 1})}, [](hlo::Instruction& gather) {
        auto& by = *gather.mutable_gather_dimension_numbers();
        by.add_offset_dims(1);
        by.add_collapsed_slice_dims(0);
        by.add_start_index_map(0);
        by.set_index_vector_dim(1);
        Fill(gather.mutable_gather_slice_sizes(), {1, 4});
      }));
  modules.push_back(OneOp("all-reduce", F32({4}), {F32({4})},
                          [](hlo::Instruction& reduce) {
                            reduce.set_channel_id(1);
                            reduce.set_use_global_device_ids(true);
                            Fill(reduce.add_replica_groups()->mutable_replica_ids(), {0, 1});
                          },
                          {Adder()}));
  hlo::Computation annotated = Adder();
  AddTo(annotated, "custom-call", F32({}), {3}).set_custom_call_target("Sharding");
  modules.push_back(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})},
                          [](hlo::Instruction& reduce) { reduce.add_dimensions(0); }, {annotated}));
  modules.push_back(OneOp("pad", F32({9}), {F32({4}), F32({})}, [](hlo::Instruction& pad) {
    auto& dim = *pad.mutable_padding_config()->add_dimensions();
    dim.set_edge_padding_low(2);
    dim.set_interior_padding(1);
  }));
  std::vector<std::string> seeds;
  for (const hlo::Module& module : modules) seeds.push_back(module.SerializeAsString());
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
  using namespace gangway;
  const std::string bytes(fuzz::View(data, size));
  const auto checked = compiler::CheckProgram(bytes, compiler::TakeAnyCall, {1, 2});
  if (!checked.ok()) return 0;
  xla::hlo::Module module;
  GANGWAY_CHECK(module.ParseFromString(bytes), "a program that is taken parses");
  for (const auto& computation : module.computations())
    for (const auto& each : computation.instructions())
      GANGWAY_CHECK(compiler::CheckShape(each.shape()).ok(), "each shape is valid");
  const auto changed =
      compiler::WithChanges(bytes, {.wants_stable_sorts = true, .has_applied_annotations = true});
  GANGWAY_CHECK(changed.ok(), "a program that is taken can be changed");
  const auto again = compiler::CheckProgram(*changed, compiler::TakeAnyCall, {1, 2});
  GANGWAY_CHECK(again.ok() && !again->wants_changes(), "and then wants nothing more");
  return 0;
}
