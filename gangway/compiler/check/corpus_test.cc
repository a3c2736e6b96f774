// The check over modules that XLA's converter made of JAX's functions (tests/hlo_modules.py): all pass, and none does
// with one dimension changed or one field added.
#include "gangway/compiler/check/corpus.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/match.h"

#include "gangway/compiler/check/check_test_util.h"
#include "gangway/compiler/check/fields.h"

namespace gangway::compiler {
namespace {

TEST(ProgramCheckCorpusTest, TakesWhatJaxLowers) {
  const auto modules = Corpus();
  ASSERT_GT(modules.size(), 300U);
  for (const std::string& module : modules) {
    hlo::Module parsed;
    ASSERT_TRUE(parsed.ParseFromString(module));
    const auto& devices = parsed.device_assignment();
    const auto checked = CheckProgram(
        module, TakeAnyCall,
        {.replicas = devices.replica_count(), .partitions = devices.computation_count()});
    EXPECT_TRUE(checked.ok()) << parsed.name() << ": " << checked.status();
  }
}

// The result of these is given by their attributes, or by nothing else.
const std::set<std::string>& FreeShapes() {
  static const std::set<std::string> free = {"iota", "rng", "rng-bit-generator", "custom-call",
                                             "conditional"};
  return free;
}

TEST(ProgramCheckCorpusTest, RefusesEachOtherResultShape) {
  int changed = 0;
  for (const std::string& bytes : Corpus()) {
    hlo::Module module;
    ASSERT_TRUE(module.ParseFromString(bytes));
    if (bytes.size() > 8'000) continue;  // the rest has the same opcodes, and the walk is quadratic
    for (auto& computation : *module.mutable_computations()) {
      for (auto& each : *computation.mutable_instructions()) {
        if (FreeShapes().contains(each.opcode()) || each.shape().dimensions_size() == 0) continue;
        if (each.opcode() == "broadcast" && each.dimensions_size() == 0) continue;
        const int64_t before = each.shape().dimensions(0);
        each.mutable_shape()->set_dimensions(0, before + 1);
        EXPECT_FALSE(Check(module).ok()) << module.name() << " " << each.name();
        each.mutable_shape()->set_dimensions(0, before);
        ++changed;
      }
    }
  }
  EXPECT_GT(changed, 1000);
}

// XLA knows the body of a shard_map by its name, and ends its process when it does not find it, or finds it elsewhere.
TEST(ProgramCheckCorpusTest, RefusesAShardMapOfAnotherForm) {
  int bodies = 0;
  for (const std::string& bytes : Corpus()) {
    hlo::Module module;
    ASSERT_TRUE(module.ParseFromString(bytes));
    for (int i = 0; i < module.computations_size(); ++i) {
      if (!module.computations(i).name().starts_with("xla.sdy.manual_computation_body")) continue;
      ++bodies;
      hlo::Module renamed = module;
      renamed.mutable_computations(i)->set_name("body");
      const auto checked = Check(renamed);
      EXPECT_TRUE(absl::StrContains(checked.status().message(), "shard_map")) << checked.status();
      hlo::Module removed = module;  // the shards go elsewhere
      for (auto& computation : *removed.mutable_computations())
        for (auto& each : *computation.mutable_instructions())
          if (each.custom_call_target() == "xla.sdy.LocalToGlobalShape")
            each.set_custom_call_target("Sharding");
      EXPECT_FALSE(Check(removed).ok());
    }
  }
  EXPECT_GT(bodies, 10);
}

TEST(ProgramCheckCorpusTest, RefusesEachOtherElementType) {
  for (const std::string& bytes : Corpus()) {
    hlo::Module module;
    ASSERT_TRUE(module.ParseFromString(bytes));
    if (bytes.size() > 8'000) continue;
    for (auto& computation : *module.mutable_computations()) {
      for (auto& each : *computation.mutable_instructions()) {
        const std::set<std::string> free = {"convert", "custom-call", "iota", "constant"};
        if (free.contains(each.opcode()) || each.shape().element_type() == xla::TYPE_TUPLE)
          continue;
        const int before = each.shape().element_type();
        each.mutable_shape()->set_element_type(before == xla::TYPE_U16 ? xla::TYPE_S16
                                                                       : xla::TYPE_U16);
        EXPECT_FALSE(Check(module).ok()) << module.name() << " " << each.name();
        each.mutable_shape()->set_element_type(before);
      }
    }
  }
}

// Every message of the module, one after the other.
template <typename Visit>
void ForEachMessage(google::protobuf::Message& message, const Visit& visit) {
  visit(message);
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map())
      continue;
    if (!field->is_repeated()) {
      ForEachMessage(*reflection->MutableMessage(&message, field), visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      ForEachMessage(*reflection->MutableRepeatedMessage(&message, field, i), visit);
  }
}

// Messages of this type are in `message`, at the first place of each field.
void FillAll(google::protobuf::Message& message, int depth) {
  if (depth == 0) return;
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map())
      continue;
    google::protobuf::Message* inner = field->is_repeated()
                                           ? reflection->AddMessage(&message, field)
                                           : reflection->MutableMessage(&message, field);
    FillAll(*inner, depth - 1);
  }
}

// One test for all messages that a module can have, so that a new one in hlo_program.proto is not forgotten.
TEST(ProgramCheckCorpusTest, RefusesUnknownFieldsOfEachMessage) {
  constexpr int kDepth = 6;
  hlo::Module module;
  FillAll(module, kDepth);
  std::set<std::string> types, refused;
  ForEachMessage(module, [&](google::protobuf::Message& message) {
    const std::string type(message.GetDescriptor()->full_name());
    types.insert(type);
    if (refused.contains(type)) return;
    auto* unknown = message.GetReflection()->MutableUnknownFields(&message);
    unknown->AddVarint(4095, 1);
    const auto& computation = module.computations(0);
    for (const auto& status :
         {CheckFields(module), CheckFields(computation), CheckFields(computation.instructions(0))})
      if (absl::StrContains(status.message(), "has field 4095")) refused.insert(type);
    unknown->Clear();
  });
  EXPECT_EQ(refused, types);
  EXPECT_GT(types.size(), 35U);
}

}  // namespace
}  // namespace gangway::compiler
