// Tests of allowed_options.h and of its table.
#include "gangway/xla/allowed_options.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gangway/base/package.h"
#include "gangway/xla/compile_options.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/option_table.h"
#include "gangway/xla/option_value.h"

namespace gangway::xla {
namespace {

using ::google::protobuf::UnknownFieldSet;
using ::testing::HasSubstr;

constexpr OptionsHost kCpu{.platform = "cpu", .flags = ""};
constexpr OptionsHost kCuda{.platform = "cuda", .flags = "--xla_gpu_cuda_data_dir=/opt/own --x=1"};

std::string Bytes(const UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(SourcePath(path), std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What each version of JAX sends for a program when the script sets nothing.
std::vector<std::string> SentByJax() {
  std::vector<std::string> all;
  for (const char* version : {"0.8.1", "0.9.0", "0.10.2", "0.12.0.1"})
    all.push_back(
        ReadFile(absl::StrCat("gangway/xla/testdata/compile_options_jax_", version, ".bin")));
  return all;
}

// Options with these serialized fields in ExecutableBuildOptionsProto, or in its DebugOptions.
std::string WithBuild(const std::string& fields) {
  UnknownFieldSet options;
  options.AddLengthDelimited(3, fields);
  return Bytes(options);
}
std::string WithDebug(const std::string& fields) {
  UnknownFieldSet build;
  build.AddLengthDelimited(3, fields);
  return WithBuild(Bytes(build));
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

// An option that is set by its name, with the value in a field of OptionOverrideProto.
std::string Named(std::string_view name, const std::string& value) {
  return Text(7, Text(1, std::string(name)) + Text(2, value));
}
std::string AsText(const std::string& value) { return Text(1, value); }
std::string AsBool(bool value) { return Varint(2, value ? 1 : 0); }
std::string AsInt(int64_t value) { return Varint(3, static_cast<uint64_t>(value)); }

std::string Allowed(const std::string& options, const OptionsHost& host = kCpu) {
  const auto allowed = AllowedOptions(options, host);
  EXPECT_TRUE(allowed.ok()) << allowed.status();
  return allowed.ok() ? *allowed : "";
}

std::string Why(const std::string& options, const OptionsHost& host = kCpu) {
  const auto allowed = AllowedOptions(options, host);
  EXPECT_EQ(allowed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(allowed.status().message());
}

std::unique_ptr<UnknownFieldSet> DebugOf(const std::string& options) {
  CompileOptionsProto parsed;
  EXPECT_TRUE(parsed.ParseFromString(options));
  const auto& build = parsed.executable_build_options();
  const UnknownFieldSet& unknown = build.GetReflection()->GetUnknownFields(build);
  auto debug = std::make_unique<UnknownFieldSet>();
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).number() == 3) debug->ParseFromString(unknown.field(i).length_delimited());
  return debug;
}

std::set<int> NumbersOf(const UnknownFieldSet& fields) {
  std::set<int> numbers;
  for (int i = 0; i < fields.field_count(); ++i) numbers.insert(fields.field(i).number());
  return numbers;
}

bool IsOfGpus(const CompileOption& option) {
  return option.rule == OptionRule::kGpu || option.rule == OptionRule::kGpuFixed ||
         option.rule == OptionRule::kGpuPath;
}
bool IsForwarded(const CompileOption& option) {
  return option.rule == OptionRule::kProgram || option.rule == OptionRule::kGpu;
}

// A value that JAX never sends by itself, in the encoding of the field.
std::string Unusual(const CompileOption& option) {
  UnknownFieldSet fields;
  switch (option.kind) {
    case OptionKind::kBool:
      fields.AddVarint(option.number, Lists(option.sent, "1") ? 0 : 1);
      break;
    case OptionKind::kInt32:
    case OptionKind::kInt64:
    case OptionKind::kEnum:
    case OptionKind::kEnums:
      fields.AddVarint(option.number, static_cast<uint64_t>(int64_t{-1234567}));
      break;
    case OptionKind::kFloat:
      fields.AddFixed32(option.number, std::bit_cast<uint32_t>(77.0f));
      break;
    default:
      fields.AddLengthDelimited(option.number, Text(1, "/tmp/chosen"));
  }
  return Bytes(fields);
}

TEST(OptionTable, IsOrderedAndEachNameIsThereOnce) {
  std::set<std::string_view> names;
  for (const CompileOption& option : kOptions) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_EQ(FindOption(option.number), &option) << option.name;
    EXPECT_EQ(FindOption(option.name), &option) << option.name;
    EXPECT_LE(option.min, option.max);
  }
  EXPECT_EQ(FindOption("xla_no_such_option"), nullptr);
  EXPECT_EQ(FindOption(1), nullptr);
}

TEST(AllowedOptions, WhatJaxSendsByItselfPassesAndStays) {
  for (const std::string& sent : SentByJax()) {
    for (const OptionsHost& host : {kCpu, kCuda}) {
      const std::string allowed = Allowed(sent, host);
      EXPECT_EQ(Allowed(allowed, host), allowed) << "one spelling";
      const auto before = DebugOf(sent), after = DebugOf(allowed);
      EXPECT_FALSE(before->empty());
      for (const int number : NumbersOf(*before)) {
        const CompileOption* const option = FindOption(number);
        ASSERT_NE(option, nullptr) << number;
        if (option->rule == OptionRule::kGpuPath) continue;
        const bool is_left_out = host.platform == "cpu" && IsOfGpus(*option);
        EXPECT_EQ(*ReadValue(*option, *after), is_left_out ? "" : *ReadValue(*option, *before))
            << option->name;
      }
    }
  }
}

// By its field, and by its name in each type.
TEST(AllowedOptions, WhateverIsNotForTheProgramAloneIsRefusedByItsName) {
  for (const CompileOption& option : kOptions) {
    if (Lists(option.sent, "0") && Lists(option.sent, "1"))
      continue;  // JAX sends all of its values
    SCOPED_TRACE(option.name);
    const std::string quoted = absl::StrCat("'", std::string(option.name), "'");
    const bool is_quiet = option.rule == OptionRule::kUnused ||
                          option.rule == OptionRule::kGpuPath || option.kind == OptionKind::kBool;
    const bool is_refused = IsForwarded(option) ? !is_quiet
                                                : option.rule != OptionRule::kUnused &&
                                                      option.rule != OptionRule::kGpuPath;
    const std::string field = WithDebug(Unusual(option));
    if (is_refused) {
      EXPECT_THAT(Why(field, kCuda), HasSubstr(quoted));
    } else {
      EXPECT_TRUE(AllowedOptions(field, kCuda).ok());
    }
    if (IsOfGpus(option)) {
      EXPECT_FALSE(NumbersOf(*DebugOf(Allowed(field, kCpu))).contains(option.number));
    } else if (is_refused) {
      EXPECT_THAT(Why(field, kCpu), HasSubstr(quoted));
      EXPECT_THAT(Why(Named(option.name, AsText("/tmp/chosen"))), HasSubstr(quoted));
    }
    if (option.kind == OptionKind::kBool && is_refused && !IsOfGpus(option)) {
      const bool unusual = !Lists(option.sent, "1");
      EXPECT_THAT(Why(Named(option.name, AsBool(unusual))), HasSubstr(quoted));
      EXPECT_THAT(Why(Named(option.name, AsText(unusual ? "True" : "false"))), HasSubstr(quoted));
    }
  }
}

TEST(AllowedOptions, SaysWhyAndWhatToDo) {
  const std::string dump = Why(Named("xla_dump_to", AsText("/tmp/x")));
  EXPECT_THAT(dump,
              HasSubstr("the compile option 'xla_dump_to' is refused: it reads or writes files"));
  EXPECT_THAT(dump, HasSubstr("compile().as_text()"));
  EXPECT_EQ(Why(WithDebug(Text(109, "/tmp/x"))), dump);
  EXPECT_THAT(Why(WithDebug(Text(500, Text(1, "-mllvm-option") + Text(2, "1")))),
              HasSubstr("it changes the whole process"));
  EXPECT_THAT(Why(Named("xla_backend_optimization_level", AsInt(4))),
              HasSubstr("it may be from 0 to 3"));
  EXPECT_THAT(Why(Named("xla_cpu_max_isa", AsText("MMX"))), HasSubstr("SSE4_2|AVX|"));
}

TEST(AllowedOptions, NumbersAreWithinTheirRange) {
  for (const CompileOption& option : kOptions) {
    const bool is_number = option.kind == OptionKind::kInt32 || option.kind == OptionKind::kInt64 ||
                           option.kind == OptionKind::kEnum;
    if (!IsForwarded(option) || !is_number) continue;
    SCOPED_TRACE(option.name);
    for (const int64_t inside : {option.min, option.max}) {
      Allowed(WithDebug(Varint(option.number, static_cast<uint64_t>(inside))), kCuda);
      Allowed(Named(option.name, AsInt(inside)), kCuda);
    }
    for (const int64_t outside : {option.min - 1, option.max + 1}) {
      const bool is_cut = option.kind != OptionKind::kInt64 && outside > INT32_MAX;
      if (Lists(option.sent, absl::StrCat(outside)) || is_cut) continue;
      Why(WithDebug(Varint(option.number, static_cast<uint64_t>(outside))), kCuda);
      Why(Named(option.name, AsInt(outside)), kCuda);
    }
  }
}

// XLA would take 0: some are limits after which a process ends, others it divides by.
TEST(AllowedOptions, NumbersThatMayNotBeZeroAreNeverAbsent) {
  const auto debug = DebugOf(Allowed(WithDebug(Varint(60, 1))));
  const std::pair<const char*, const char*> filled[] = {
      {"xla_cpu_collective_call_terminate_timeout_seconds", "40"},
      {"xla_cpu_collective_timeout_seconds", "1800"},
      {"xla_cpu_parallel_codegen_split_count", "32"},
      {"xla_reduce_window_rewrite_base_length", "16"},
      {"xla_dump_max_hlo_modules", "-1"}};
  for (const auto& [name, value] : filled) EXPECT_EQ(*ReadValue(*FindOption(name), *debug), value);
  EXPECT_FALSE(NumbersOf(*debug).contains(31)) << "which may be zero";
  const auto gpu = DebugOf(Allowed(WithDebug(""), kCuda));
  EXPECT_EQ(*ReadValue(*FindOption("xla_gpu_executable_terminate_timeout_seconds"), *gpu), "30");
  EXPECT_FALSE(NumbersOf(*debug).contains(328)) << "on CPUs";
}

// XLA would cut it to 32 bits.
TEST(AllowedOptions, AValueIsReadAsProtobufReadsIt) {
  const uint64_t level_1 = (uint64_t{1} << 32) | 1;
  EXPECT_EQ(Allowed(WithDebug(Varint(31, level_1))), Allowed(WithDebug(Varint(31, 1))));
  EXPECT_EQ(Allowed(WithDebug(Varint(31, 9) + Varint(31, 1))), Allowed(WithDebug(Varint(31, 1))));
  Why(WithDebug(Varint(31, 1) + Varint(31, 9)));
  EXPECT_THAT(Why(WithDebug(Text(31, "3"))), HasSubstr("'xla_backend_optimization_level'"));
  EXPECT_THAT(Why(WithDebug(Varint(109, 1))), HasSubstr("'xla_dump_to'"));
  // Two debug options are merged.
  const std::string two = Text(3, Varint(31, 2)) + Text(3, Varint(60, 1));
  EXPECT_EQ(Allowed(WithBuild(two)), Allowed(WithDebug(Varint(31, 2) + Varint(60, 1))));
}

TEST(AllowedOptions, EqualOptionsHaveOneSpelling) {
  const std::string sent = SentByJax()[2];
  const std::string slow = Allowed(sent + Named("xla_backend_optimization_level", AsInt(0)));
  EXPECT_NE(slow, Allowed(sent));
  EXPECT_EQ(Allowed(sent + Named("xla_backend_optimization_level", AsText("0"))), slow);
  EXPECT_EQ(Allowed(sent + WithDebug(Varint(31, 0))), slow) << "as XLA_FLAGS of the script say it";
  EXPECT_EQ(Allowed(sent + Named("xla_backend_optimization_level", AsInt(3))), Allowed(sent));
  // Without debug options it stays an option by name.
  const std::string fast = Allowed(Named("xla_cpu_enable_fast_math", AsBool(true)));
  for (const char* yes : {"True", "true", "1"})
    EXPECT_EQ(Allowed(Named("xla_cpu_enable_fast_math", AsText(yes))), fast);
  EXPECT_THAT(fast, HasSubstr("True"));
  EXPECT_EQ(Allowed(Named("xla_cpu_enable_fast_math", AsText("maybe")) +
                    Named("xla_cpu_enable_fast_math", AsBool(true))),
            fast);
  EXPECT_EQ(Allowed(sent + Named("xla_disable_hlo_passes", AsText("fusion,cse,cse"))),
            Allowed(sent + WithDebug(Text(30, "cse") + Text(30, "fusion"))));
  EXPECT_EQ(Allowed(WithDebug(Text(30, "fusion,cse"))),
            Allowed(WithDebug(Text(30, "cse") + Text(30, "fusion"))));
  // A number is one that its field can hold.
  UnknownFieldSet small;
  small.AddFixed64(4, std::bit_cast<uint64_t>(1e-300));
  const char* const ratio = "xla_gpu_auto_spmd_partitioning_memory_budget_ratio";
  EXPECT_EQ(Allowed(Named(ratio, Bytes(small)), kCuda), Allowed(Named(ratio, AsText("0")), kCuda));
  const std::string preset = Allowed(Named("xla_cpu_opt_preset", AsInt(2)));
  EXPECT_THAT(preset, HasSubstr("CPU_OPT_PRESET_FAST_COMPILE"));
  EXPECT_EQ(Allowed(Named("xla_cpu_opt_preset", AsText("CPU_OPT_PRESET_FAST_COMPILE"))), preset);
}

TEST(AllowedOptions, WhatScriptsSetForOtherMachinesDoesNotCount) {
  for (const std::string& sent : SentByJax()) {
    const std::string plain = Allowed(sent);
    EXPECT_EQ(Allowed(sent + WithDebug(Varint(102, 8))), plain) << "host_platform_device_count";
    EXPECT_EQ(Allowed(sent + WithDebug(Varint(417, 1) + Varint(418, 1))), plain) << "timeouts";
    EXPECT_EQ(Allowed(sent + Named("xla_cpu_collective_call_terminate_timeout_seconds", AsInt(1))),
              plain);
    EXPECT_EQ(Allowed(sent + Named("xla_gpu_enable_latency_hiding_scheduler", AsBool(true))),
              plain);
    EXPECT_EQ(Allowed(sent + WithDebug(Text(310, "/home/me/cache"))), plain);
    EXPECT_EQ(Allowed(sent + WithDebug(Varint(9999, 7) + Text(9998, "x"))), plain) << "a newer JAX";
  }
}

TEST(AllowedOptions, OnGpusPathsAreTheClustersAndProgramsOptionsCount) {
  const std::string sent = SentByJax()[2];
  const auto cuda = [&sent](const std::string& more) { return Allowed(sent + more, kCuda); };
  EXPECT_EQ(*ReadValue(*FindOption("xla_gpu_cuda_data_dir"), *DebugOf(cuda(""))), "/opt/own");
  EXPECT_EQ(cuda(WithDebug(Text(61, "/home/me/cuda"))), cuda(""));
  const OptionsHost without{.platform = "cuda", .flags = ""};
  EXPECT_EQ(*ReadValue(*FindOption(61), *DebugOf(Allowed(sent, without))), "./cuda_sdk_lib");
  EXPECT_NE(cuda(Named("xla_gpu_enable_latency_hiding_scheduler", AsBool(true))), cuda(""));
  EXPECT_THAT(Why(sent + Named("xla_gpu_dump_autotune_results_to", AsText("/tmp/x")), kCuda),
              HasSubstr("it reaches the driver, files or other programs"));
}

TEST(AllowedOptions, WhatIsUnknownIsRefused) {
  EXPECT_THAT(Why(Named("xla_no_such_option", AsBool(true))),
              HasSubstr("'xla_no_such_option' is refused: Gangway does not know it"));
  EXPECT_THAT(Why(Named("\x1b[2J\n", AsBool(true))), HasSubstr("\\x1b[2J\\n"));
  EXPECT_LT(Why(Named(std::string(100'000, 'a'), AsBool(true))).size(), 400u);
  EXPECT_THAT(Why(WithBuild(Varint(99, 1))),
              HasSubstr("'field 99 of ExecutableBuildOptionsProto' is refused"));
  EXPECT_THAT(Why(Varint(98, 1)), HasSubstr("'field 98 of CompileOptionsProto' is refused"));
  EXPECT_THAT(Why(WithBuild(Text(4, "2"))), HasSubstr("field 4 of")) << "of another type";
  EXPECT_THAT(Why("\x0a\xff"), HasSubstr("are not XLA's"));
  EXPECT_THAT(Why(WithDebug("\x0a\xff")), HasSubstr("are not XLA's"));
  EXPECT_THAT(Why(Text(7, "\x0a\xff")), HasSubstr("malformed"));
  EXPECT_THAT(Why(std::string(kOptionsBytesMax + 1, 'a')), HasSubstr("are not XLA's"));
  std::string large;
  while (large.size() < (70u << 10)) large += Varint(2, 0);
  EXPECT_THAT(Why(WithDebug(large)), HasSubstr("over the limit"));
}

TEST(AllowedOptions, TheOtherMessagesHaveAListToo) {
  const std::pair<std::string, const char*> refused[] = {
      {WithBuild(Varint(7, 1)), "use_auto_spmd_partitioning"},
      {WithBuild(Varint(10, 1)), "alias_passthrough_params"},
      {WithBuild(Varint(11, 1)), "run_backend_only"},
      {WithBuild(Text(13, Text(1, Text(1, "type.googleapis.com/xla.GpuCompilationEnvironment")))),
       "comp_envs"},
      {WithBuild(Text(16, "\x02")), "auto_spmd_partitioning_mesh_shape"},
      {WithBuild(Varint(17, 2)), "auto_spmd_partitioning_mesh_ids"},
      {WithBuild(Varint(22, 1)), "process_index"},
      {WithBuild(Varint(23, 2)), "process_count"},
      {WithBuild(Varint(24, 7)), "optimization_level"},
      {WithBuild(Varint(26, 1)), "slice_size"},
      {WithBuild(Varint(4, ~uint64_t{0})), "num_replicas"},
      {WithBuild(Varint(5, uint64_t{1} << 40)), "num_partitions"},
      {Varint(2, 1), "parameter_is_tupled_arguments"},
      {Text(6, "x"), "serialized_multi_slice_config"},
      {Text(8, "x"), "target_config"},
      {Varint(10, 9), "matrix_unit_operand_precision"},
      {Text(11, "x"), "compiler_variant"},
      {Varint(12, 1), "individually_defined_output_indices"},
  };
  for (const auto& [options, name] : refused) EXPECT_THAT(Why(options), HasSubstr(name));
  const std::string plain = Allowed("");
  for (const std::string& same :
       {WithBuild(Varint(1, ~uint64_t{1})), WithBuild(Varint(8, 1)), WithBuild(Text(14, "profile")),
        WithBuild(Varint(15, 1 << 30)), Varint(9, 1), Varint(5, 77), Varint(4, 1),
        WithBuild(Varint(4, 1) + Varint(5, 1) + Varint(7, 0) + Text(13, ""))})
    EXPECT_EQ(Allowed(same), plain);
  EXPECT_THAT(Why(WithBuild(Text(14, "profile")), kCuda), HasSubstr("fdo_profile"));
  EXPECT_NE(Allowed(WithBuild(Varint(24, 39))), plain);
  // Their devices are the compiler's.
  const std::string two = WithBuild(Varint(5, 2));
  EXPECT_EQ(Allowed(*WithDevices(two, std::vector<uint32_t>{5, 4})), Allowed(two));
}

TEST(AllowedOptions, LayoutsAreThoseOfTheClustersArrays) {
  const auto allowed = [](const std::function<void(ShapeProto&)>& change) {
    CompileOptionsProto options;
    ShapeProto& shape = *options.add_argument_layouts();
    shape.set_element_type(TYPE_F32);
    for (const int size : {2, 3}) shape.add_dimensions(size);
    for (const int dimension : {1, 0}) shape.mutable_layout()->add_minor_to_major(dimension);
    change(shape);
    *options.mutable_executable_build_options()->mutable_result_layout() = shape;
    const auto allowed = AllowedOptions(options.SerializeAsString(), kCpu);
    EXPECT_EQ(allowed.value_or(Allowed("")), Allowed("")) << "it is the default";
    return allowed.ok();
  };
  EXPECT_TRUE(allowed([](ShapeProto&) {}));
  EXPECT_TRUE(allowed([](ShapeProto& shape) { shape.clear_layout(); }));
  const std::function<void(ShapeProto&)> changes[] = {
      [](ShapeProto& shape) { shape.mutable_layout()->set_minor_to_major(0, 0); },
      [](ShapeProto& shape) { shape.mutable_layout()->add_minor_to_major(2); },
      [](ShapeProto& shape) { shape.mutable_layout()->add_tiles()->add_dimensions(8); },
      [](ShapeProto& shape) { shape.mutable_layout()->set_memory_space(5); },
      [](ShapeProto& shape) { shape.set_dimensions(0, -1); },
      [](ShapeProto& shape) { shape.set_dimensions(0, INT64_MAX); },
      [](ShapeProto& shape) { shape.add_is_dynamic_dimension(true); },
      [](ShapeProto& shape) { *shape.add_tuple_shapes() = ShapeProto(); },
      [](ShapeProto& shape) { shape.set_element_type(TYPE_TUPLE); },
      [](ShapeProto& shape) { shape.set_element_type(TYPE_OPAQUE_TYPE); },
      [](ShapeProto& shape) { shape.set_element_type(static_cast<PrimitiveType>(1000)); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) EXPECT_FALSE(allowed(changes[i])) << i;
}

TEST(AllowedOptions, ListsFitTheProgram) {
  ProgramShapeProto shape;
  for (int i = 0; i < 3; ++i) shape.add_parameters();
  const auto fits = [&shape](int parameters, int results) {
    const std::string options =
        WithBuild(Text(18, std::string(parameters, '\1')) + Text(12, std::string(results, '\0')));
    return CheckPropagation(options, shape).ok();
  };
  EXPECT_TRUE(fits(3, 1) && fits(1, 1) && fits(0, 0));
  EXPECT_FALSE(fits(2, 1) || fits(4, 1) || fits(3, 2));
  shape.mutable_result()->set_element_type(TYPE_TUPLE);
  for (int i = 0; i < 2; ++i) shape.mutable_result()->add_tuple_shapes();
  EXPECT_TRUE(fits(3, 2) && fits(3, 1));
  EXPECT_FALSE(fits(3, 3) || fits(2, 2));
  EXPECT_FALSE(CheckPropagation("\x0a\xff", shape).ok());
}

// --- docs/reference/options.md ---

std::string Values(const CompileOption& option) {
  if (option.kind == OptionKind::kBool) return "true, false";
  std::string names(option.values);
  if (!names.empty()) {
    std::vector<std::string> listed = absl::StrSplit(names, '|', absl::SkipEmpty());
    std::string all;
    for (const std::string& each : listed)
      absl::StrAppend(&all, all.empty() ? "`" : ", `", each, "`");
    return option.kind == OptionKind::kTexts ? absl::StrCat("any of ", all) : all;
  }
  return absl::StrCat(option.min, " to ", option.max);
}

// The names of a rule's options, in lines of at most 118 columns.
std::string Names(OptionRule rule) {
  std::string text, line;
  for (const CompileOption& option : kOptions) {
    if (option.rule != rule) continue;
    const std::string name = absl::StrCat("`", std::string(option.name), "`");
    if (!line.empty() && line.size() + name.size() + 2 > 118) {
      absl::StrAppend(&text, line, ",\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : ", ", name);
  }
  return absl::StrCat(text, line, ".\n");
}

// Also prints what the page should say.
TEST(OptionTable, TheReferenceListsAllOfIt) {
  const std::string page = ReadFile("docs/reference/options.md");
  std::string table = "| option | values |\n|---|---|\n";
  for (const CompileOption& option : kOptions) {
    if (option.rule == OptionRule::kProgram)
      absl::StrAppend(&table, "| `", std::string(option.name), "` | ", Values(option), " |\n");
  }
  EXPECT_THAT(page, HasSubstr(table));
  for (const OptionRule rule : {OptionRule::kUnused, OptionRule::kFile, OptionRule::kProcess,
                                OptionRule::kProfile, OptionRule::kEnds, OptionRule::kUnlisted,
                                OptionRule::kGpu, OptionRule::kGpuPath, OptionRule::kGpuFixed})
    EXPECT_THAT(page, HasSubstr(Names(rule)));
}

}  // namespace
}  // namespace gangway::xla
