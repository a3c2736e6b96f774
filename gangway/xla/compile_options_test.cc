// Tests of compile_options.h.
#include "gangway/xla/compile_options.h"

#include <google/protobuf/unknown_field_set.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::xla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CompileOptionsProto Options(int replicas, int partitions, std::vector<uint32_t> devices) {
  CompileOptionsProto options;
  auto& build = *options.mutable_executable_build_options();
  build.set_num_replicas(replicas);
  build.set_num_partitions(partitions);
  EXPECT_TRUE(options.ParseFromString(*WithDevices(options.SerializeAsString(), devices)));
  return options;
}

std::string Bytes(const google::protobuf::UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

// An entry of the options that a caller adds by name.
std::string Override(const std::string& name, int number, const std::string& value) {
  google::protobuf::UnknownFieldSet text, entry, options;
  text.AddLengthDelimited(number, value);
  entry.AddLengthDelimited(1, name);
  entry.AddLengthDelimited(2, Bytes(text));
  options.AddLengthDelimited(7, Bytes(entry));
  return Bytes(options);
}

TEST(CompileOptions, AssignmentRoundTrip) {
  EXPECT_THAT(*AssignedDevices(Options(1, 4, {9, 8, 3, 2})), ElementsAre(9, 8, 3, 2));
  EXPECT_THAT(*AssignedDevices(Options(2, 2, {0, 1, 2, 3})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*AssignedDevices(Options(1, 4, {})), IsEmpty());
}

TEST(CompileOptions, UnknownFieldsSurvive) {
  CompileOptionsProto options = Options(1, 2, {4, 5});
  auto& build = *options.mutable_executable_build_options();
  build.GetReflection()->MutableUnknownFields(&build)->AddLengthDelimited(3, "debug options");
  options.GetReflection()->MutableUnknownFields(&options)->AddVarint(9, 1);
  std::string rewritten = *WithDevices(options.SerializeAsString(), std::vector<uint32_t>{0, 1});
  CompileOptionsProto again;
  ASSERT_TRUE(again.ParseFromString(rewritten));
  EXPECT_THAT(*AssignedDevices(again), ElementsAre(0, 1));
  const auto& build_again = again.executable_build_options();
  const auto& unknown = build_again.GetReflection()->GetUnknownFields(build_again);
  ASSERT_EQ(unknown.field_count(), 1);
  EXPECT_EQ(unknown.field(0).length_delimited(), "debug options");
  EXPECT_EQ(again.GetReflection()->GetUnknownFields(again).field_count(), 1);
}

TEST(CompileOptions, RefusesMalformed) {
  EXPECT_FALSE(WithDevices("\x0a\xff", {}).ok());
  CompileOptionsProto two;
  two.mutable_executable_build_options()->set_num_partitions(2);
  EXPECT_FALSE(WithDevices(two.SerializeAsString(), std::vector<uint32_t>{0, 1, 2}).ok());
  two.mutable_executable_build_options()->set_num_partitions(INT64_MAX);
  two.mutable_executable_build_options()->set_num_replicas(INT64_MAX);
  EXPECT_FALSE(WithDevices(two.SerializeAsString(), std::vector<uint32_t>{0}).ok());

  CompileOptionsProto options = Options(1, 2, {4, 5});
  auto& assignment = *options.mutable_executable_build_options()->mutable_device_assignment();
  assignment.mutable_computations(0)->set_replica_device_ids(0, 5);
  EXPECT_FALSE(AssignedDevices(options).ok());  // repeated
  assignment.mutable_computations(0)->set_replica_device_ids(0, -1);
  EXPECT_FALSE(AssignedDevices(options).ok());
  assignment.mutable_computations(0)->clear_replica_device_ids();
  EXPECT_FALSE(AssignedDevices(options).ok());
  assignment.set_computation_count(3);
  EXPECT_FALSE(AssignedDevices(options).ok());
}

// A serialized map<string, string> field of `number`, its entries in the order given.
std::string MapField(int number, const std::vector<std::string>& keys) {
  google::protobuf::UnknownFieldSet fields;
  for (const std::string& key : keys) {
    google::protobuf::UnknownFieldSet entry;
    entry.AddLengthDelimited(1, key);
    entry.AddLengthDelimited(2, "-1");
    entry.SerializeToString(fields.AddLengthDelimited(number));
  }
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

std::string OptionsWithMaps(const std::vector<std::string>& keys, const std::string& more = "") {
  CompileOptionsProto options;
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.set_num_partitions(2);
  build.GetReflection()->MutableUnknownFields(&build)->AddLengthDelimited(
      3, MapField(357, keys) + more + MapField(500, {"x"}));
  return options.SerializeAsString() + MapField(7, keys);
}

TEST(CompileOptions, TheOrderOfAMapsEntriesDoesNotCount) {
  const auto one = CanonicalOptions(OptionsWithMaps({"rtt", "chunk", "nic"}));
  const auto other = CanonicalOptions(OptionsWithMaps({"nic", "rtt", "chunk"}));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(*one, *other);
  EXPECT_NE(*one, *CanonicalOptions(OptionsWithMaps({"nic", "rtt"})));
  EXPECT_EQ(one->size(), OptionsWithMaps({"rtt", "chunk", "nic"}).size()) << "nothing is lost";
}

TEST(CompileOptions, TheOrderOfAListCounts) {
  google::protobuf::UnknownFieldSet passes;
  passes.AddLengthDelimited(30, "fusion");
  passes.AddLengthDelimited(30, "algebra");
  std::string list;
  passes.SerializeToString(&list);
  google::protobuf::UnknownFieldSet reversed;
  reversed.AddLengthDelimited(30, "algebra");
  reversed.AddLengthDelimited(30, "fusion");
  std::string other;
  reversed.SerializeToString(&other);
  EXPECT_NE(*CanonicalOptions(OptionsWithMaps({"a"}, list)),
            *CanonicalOptions(OptionsWithMaps({"a"}, other)));
}

TEST(CompileOptions, WhatIsTheCallersOwnIsDropped) {
  CompileOptionsProto options, plain;
  for (CompileOptionsProto* each : {&options, &plain}) {
    each->set_compile_portable_executable(true);
    ExecutableBuildOptionsProto& build = *each->mutable_executable_build_options();
    build.GetReflection()->MutableUnknownFields(&build)->AddVarint(23, 1);
  }
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.GetReflection()->MutableUnknownFields(&build)->AddVarint(15, 1 << 30);
  options.GetReflection()->MutableUnknownFields(&options)->AddVarint(9, 1);
  DropLocalOptions(options);
  EXPECT_EQ(options.SerializeAsString(), plain.SerializeAsString());
}

TEST(CompileOptions, AnOptionIsTakenByItsNameAndTheOthersStay) {
  CompileOptionsProto options;
  ASSERT_TRUE(options.ParseFromString(Override("one", 1, "1") + Override("mine", 1, "a,b") +
                                      Override("three", 1, "3")));
  EXPECT_EQ(TakeOption("mine", options), "a,b");
  EXPECT_EQ(TakeOption("mine", options), "");
  EXPECT_EQ(options.SerializeAsString(), Override("one", 1, "1") + Override("three", 1, "3"));
}

TEST(CompileOptions, AnOptionOfAnotherTypeOrFormIsNotTaken) {
  for (const std::string& bytes :
       {Override("mine", 2, "a"), std::string("\x3a\x00", 2), std::string("\x3a\x02\x0a\x05")}) {
    CompileOptionsProto options;
    if (!options.ParseFromString(bytes)) continue;
    EXPECT_EQ(TakeOption("mine", options), "");
    EXPECT_EQ(options.SerializeAsString(), bytes);
  }
}

}  // namespace
}  // namespace gangway::xla
