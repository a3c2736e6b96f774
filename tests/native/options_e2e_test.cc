// A client of the native protocol that sends arbitrary bytes as compile options. tests/test_hostile_options.py starts
// the cluster: GANGWAY_TEST_CONTROL is its control address, GANGWAY_TEST_FOLDER has its tokens, and at
// GANGWAY_TEST_PATH no file may appear.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/native/native_client.h"

namespace gangway::e2e {
namespace {

using ::google::protobuf::UnknownFieldSet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(const UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}
std::string Varint(int number, uint64_t value) {
  UnknownFieldSet fields;
  fields.AddVarint(number, value);
  return Bytes(fields);
}
std::string Text(int number, const std::string& value) {
  UnknownFieldSet fields;
  fields.AddLengthDelimited(number, value);
  return Bytes(fields);
}
std::string Build(const std::string& fields) { return Text(3, fields); }
std::string Debug(const std::string& fields) { return Build(Text(3, fields)); }
std::string Named(const std::string& name, const std::string& value) {
  return Text(7, Text(1, name) + Text(2, Text(1, value)));
}

struct Case {
  std::string options;
  std::string refusal;  // what its error says; empty: it is harmless
};

std::vector<Case> Cases(const std::string& path) {
  return {
      {Debug(Text(109, path)), "'xla_dump_to' is refused: it reads or writes files"},
      {Named("xla_dump_to", path), "'xla_dump_to' is refused"},
      {Build(Text(3, Varint(31, 3))) + Debug(Text(109, path)), "'xla_dump_to'"},  // they are merged
      {Debug(Text(110, ".*")), "'xla_dump_hlo_module_re'"},
      {Debug(Varint(405, 1)), "'xla_dump_hlo_unoptimized_snapshots'"},
      {Debug(Text(544, path)), "'xla_candidate_configs_file'"},
      {Debug(Text(500, Text(1, "-opt-bisect-limit") + Text(2, "1"))),
       "'xla_backend_extra_options'"},
      {Named("xla_backend_extra_options", "-opt-bisect-limit=1"), "'xla_backend_extra_options'"},
      {Debug(Varint(379, 1)), "'xla_unsupported_crash_on_hlo_pass_noop_change'"},
      {Debug(Varint(104, 1)), "'xla_disable_all_hlo_passes'"},
      {Debug(Text(124, "cse")), "'xla_enable_hlo_passes_only'"},
      {Debug(Text(30, "copy-insertion")), "'xla_disable_hlo_passes' is refused: its value"},
      {Debug(Varint(548, 1)), "'xla_cpu_mock_custom_calls'"},
      {Debug(Varint(31, 1000)), "it may be from 0 to 3"},
      {Debug(Text(31, "3")), "its value has another type"},
      {Debug("\x0a\xff"), "the debug options are not XLA's"},
      {Build(Varint(10, 1)), "'alias_passthrough_params'"},
      {Build(Varint(11, 1)), "'run_backend_only' is refused: XLA would trust"},
      {Build(Text(13, Text(1, Text(1, "x")))), "'comp_envs'"},
      {Build(Varint(7, 1)), "'use_auto_spmd_partitioning'"},
      {Build(Varint(22, 3)), "'process_index'"},
      {Build(Varint(4, ~uint64_t{0})), "'num_replicas and num_partitions'"},
      {Build(Varint(77, 1)), "'field 77 of ExecutableBuildOptionsProto'"},
      {Varint(2, 1), "'parameter_is_tupled_arguments'"},
      {Text(6, "x"), "'serialized_multi_slice_config'"},
      {Text(8, Text(1, "x")), "'target_config'"},
      {Varint(99, 1), "'field 99 of CompileOptionsProto'"},
      {Named("no_such\x1b[2J", "1"), "'no_such\\x1b[2J' is refused: Gangway does not know it"},
      {"\xff\xff", "are not XLA's"},
      // Harmless:
      {Build(Varint(1, ~uint64_t{1})),
       ""},  // a device ordinal that XLA would check against its devices
      {Build(Text(2, Varint(2, 13) + Text(4, Varint(2, 11) + Text(3, "\4")))), ""},  // of a tuple
      {Debug(""), ""},  // all of them absent
      {Debug(Varint(417, 1) + Varint(418, 1)), ""},
      {Debug(Text(61, path)), ""},
      {Debug(Varint(9999, 1)), ""},
      {Debug(Varint(31, 0)), ""},
      {Build(Text(14, "a profile")), ""},
  };
}

class OptionsE2eTest : public ClusterTest {};

TEST_F(OptionsE2eTest, EachIsRefusedByItsNameOrHarmless) {
  const char* const path = std::getenv("GANGWAY_TEST_PATH");
  ASSERT_NE(path, nullptr) << "a path at which no file may appear";
  auto opened = Open(control_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  NativeClient client(*std::move(opened));
  const ArrayHandle array = client.Put({1, 2, 3, 4});
  for (const Case& each : Cases(path)) {
    SCOPED_TRACE(each.refusal);
    const absl::StatusOr<ExecutableHandle> compiled = client.CompileDouble(each.options);
    if (!each.refusal.empty()) {
      EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(compiled.status().ToString(), HasSubstr(each.refusal));
      continue;
    }
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto doubled = client.Get(client.Run(*compiled, array));
    ASSERT_TRUE(doubled.ok()) << doubled.status();
    EXPECT_THAT(*doubled, ElementsAre(2, 4, 6, 8));
  }
}

}  // namespace
}  // namespace gangway::e2e
