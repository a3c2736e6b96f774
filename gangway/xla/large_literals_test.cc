// Tests of large_literals.h. That XLA's clients read what it leaves: tests/test_constants.py.
#include "gangway/xla/large_literals.h"

#include <string>

#include "gtest/gtest.h"

#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::xla {
namespace {

constexpr int kValues = 100'000;

// A program of two computations, each with a large constant between small instructions.
HloWithConfigEditProto Program() {
  HloWithConfigEditProto program;
  program.mutable_config()->set_num_partitions(4);
  program.mutable_module()->set_name("jit_f");
  for (int64_t id : {1, 2}) {
    HloComputationEditProto& computation = *program.mutable_module()->add_computations();
    computation.set_id(id);
    computation.set_root_id(3);
    for (int values : {1, kValues, 2}) {
      HloInstructionEditProto& instruction = *computation.add_instructions();
      instruction.set_id(computation.instructions_size());
      instruction.set_opcode("constant");
      instruction.set_backend_config("after the literal");
      for (int i = 0; i < values; ++i) instruction.mutable_literal()->add_s32s(i);
    }
  }
  program.mutable_module()->set_entry_computation_id(2);
  return program;
}

TEST(LargeLiterals, LeavesOutTheValuesOfLargeConstantsAndNothingElse) {
  HloWithConfigEditProto program = Program();
  const std::string shortened = WithoutLargeLiterals(program.SerializeAsString());
  EXPECT_LT(shortened.size(), 1000u);
  for (HloComputationEditProto& computation : *program.mutable_module()->mutable_computations())
    computation.mutable_instructions(1)->clear_literal();
  EXPECT_EQ(shortened, program.SerializeAsString());
}

TEST(LargeLiterals, KeepsLargeProgramsWhoseConstantsAreSmall) {
  HloWithConfigEditProto program = Program();
  for (HloComputationEditProto& computation : *program.mutable_module()->mutable_computations())
    computation.mutable_instructions(1)->clear_literal();
  program.mutable_module()->set_name(std::string(10 * kLargeLiteralBytes, 'f'));
  program.mutable_module()->mutable_computations(1)->set_name(
      std::string(3 * kLargeLiteralBytes, 'c'));
  const std::string bytes = program.SerializeAsString();
  EXPECT_EQ(WithoutLargeLiterals(bytes), bytes);
}

TEST(LargeLiterals, ReturnsBytesThatAreNoProgramAsTheyAre) {
  const std::string whole = Program().SerializeAsString();
  for (size_t size : {whole.size() - 1, whole.size() / 2, kLargeLiteralBytes + 1}) {
    const std::string cut = whole.substr(0, size);
    EXPECT_EQ(WithoutLargeLiterals(cut), cut) << size;
  }
  const std::string other(2 * kLargeLiteralBytes, '\xff');
  EXPECT_EQ(WithoutLargeLiterals(other), other);
}

}  // namespace
}  // namespace gangway::xla
