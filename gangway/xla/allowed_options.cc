// Implementation of allowed_options.h.
#include "gangway/xla/allowed_options.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"
#include "gangway/xla/compile_options.pb.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/option_table.h"
#include "gangway/xla/option_value.h"

namespace gangway::xla {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::UnknownField;
using ::google::protobuf::UnknownFieldSet;

constexpr int kDebugOptions = 3;  // of ExecutableBuildOptionsProto
constexpr int kOverrides = 7;     // of CompileOptionsProto
constexpr size_t kDebugBytesMax = size_t{64} << 10;
constexpr size_t kNameShown = 80;
constexpr int kListMax = 1 << 16;
constexpr int64_t kPositionsMax = 1 << 20;
constexpr char kSeeTheList[] = "docs/reference/options.md lists what a script may set";

bool IsCpu(const OptionsHost& host) { return host.platform == "cpu" || host.platform == "sim"; }

absl::Status Refused(std::string_view name, std::string_view why, std::string_view instead) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the compile option '", absl::CHexEscape(std::string(name.substr(0, kNameShown))),
      "' is refused: ", std::string(why), "; ", std::string(instead)));
}

// --- Options of DebugOptions ---

struct Reason {
  OptionRule rule;
  const char* why;
  const char* instead;
};
constexpr Reason kReasons[] = {
    {OptionRule::kFile, "it reads or writes files on the cluster's host",
     "compile().as_text() of a lowered function returns the compiled program to the script"},
    {OptionRule::kProcess, "it changes the whole process, which compiles for everybody",
     "whoever starts the cluster can set it in XLA_FLAGS"},
    {OptionRule::kProfile, "it profiles the process that runs everybody's programs",
     "`gangway trace` shows what the cluster does"},
    {OptionRule::kEnds, "it ends the process that compiles for everybody", "leave it out"},
    {OptionRule::kGpuFixed, "it reaches the driver, files or other programs of the GPUs' host",
     "whoever starts the cluster can set it in XLA_FLAGS"},
    {OptionRule::kUnlisted, "it is not on the list of options that concern only their program",
     kSeeTheList},
};

absl::Status OutOfRange(const CompileOption& option) {
  const bool is_number = option.values.empty();
  const std::string range = is_number ? absl::StrCat("from ", option.min, " to ", option.max)
                                      : absl::StrCat("made of ", std::string(option.values));
  return Refused(option.name, "its value is out of range", absl::StrCat("it may be ", range));
}

// The value of a flag in the text of XLA_FLAGS; none: it is not there.
std::optional<std::string> Flag(std::string_view flags, std::string_view name) {
  const std::string wanted = absl::StrCat("--", std::string(name), "=");
  const size_t found = flags.rfind(wanted);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view rest = flags.substr(found + wanted.size());
  return std::string(rest.substr(0, rest.find_first_of(" \n\t")));
}

std::optional<std::string> FirstSent(const CompileOption& option) {
  if (option.sent.empty()) return std::nullopt;
  return std::string(option.sent.substr(0, option.sent.find('|')));
}

bool IsLeftOut(const CompileOption& option, const OptionsHost& host) {
  const bool is_of_gpus = option.rule == OptionRule::kGpu || option.rule == OptionRule::kGpuPath ||
                          option.rule == OptionRule::kGpuFixed;
  return is_of_gpus && IsCpu(host);
}

// What XLA gets instead of the value; none: the field is left out.
absl::StatusOr<std::optional<std::string>> Settle(const CompileOption& option,
                                                  const std::string& value,
                                                  const OptionsHost& host) {
  using Result = std::optional<std::string>;
  // JAX sends it unless a script asks for something else.
  const bool is_usual = Lists(option.sent, value) || (option.sent.empty() && IsZero(value));
  if (IsLeftOut(option, host)) return Result();
  switch (option.rule) {
    case OptionRule::kProgram:
    case OptionRule::kGpu:
      if (!is_usual && !IsInRange(option, value)) return OutOfRange(option);
      return Result(value);
    case OptionRule::kUnused:
      return is_usual && !option.sent.empty() ? Result(value) : FirstSent(option);
    case OptionRule::kGpuPath: {
      Result own = Flag(host.flags, option.name);
      return own ? own : FirstSent(option);
    }
    default:
      break;
  }
  if (is_usual) return option.sent.empty() ? Result() : Result(value);
  const auto* const reason =
      std::find_if(std::begin(kReasons), std::end(kReasons),
                   [&option](const Reason& each) { return each.rule == option.rule; });
  return Refused(option.name, reason->why, reason->instead);
}

// The options of DebugOptions that XLA gets, by number.
using Settled = std::map<int, std::string>;

// A field that is absent is 0 to XLA, which for a limit or a length may mean to end at once, or to divide by it.
void FillIn(const OptionsHost& host, Settled& settled) {
  for (const CompileOption& option : kOptions) {
    const bool is_number = option.kind == OptionKind::kInt32 || option.kind == OptionKind::kInt64;
    if (!is_number || settled.contains(option.number) || IsLeftOut(option, host)) continue;
    const bool may_be_chosen =
        option.rule == OptionRule::kProgram || option.rule == OptionRule::kGpu;
    const bool may_be_zero =
        option.sent.empty() || Lists(option.sent, "0") || (may_be_chosen && IsInRange(option, "0"));
    if (!may_be_zero) settled[option.number] = *FirstSent(option);
  }
}

absl::StatusOr<Settled> SettleDebugOptions(const std::string& serialized, const OptionsHost& host) {
  UnknownFieldSet fields;
  if (serialized.size() > kDebugBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("the debug options have ", serialized.size(),
                                                   " bytes, over the limit of ", kDebugBytesMax));
  if (!fields.ParseFromString(serialized))
    return absl::InvalidArgumentError("the debug options are not XLA's");
  std::set<int> numbers;
  for (int i = 0; i < fields.field_count(); ++i) numbers.insert(fields.field(i).number());
  Settled settled;
  for (const int number : numbers) {
    const CompileOption* const option = FindOption(number);
    if (option == nullptr || IsLeftOut(*option, host)) continue;
    GANGWAY_ASSIGN_OR_RETURN(const std::string value, ReadValue(*option, fields));
    GANGWAY_ASSIGN_OR_RETURN(std::optional<std::string> kept, Settle(*option, value, host));
    if (kept) settled[number] = *std::move(kept);
  }
  FillIn(host, settled);
  return settled;
}

// --- Options by name ---

struct Override {
  std::string name, value;  // the value is a serialized OptionOverrideProto
};

absl::StatusOr<Override> ReadEntry(const UnknownField& field) {
  constexpr int kKey = 1, kValue = 2;
  UnknownFieldSet entry;
  Override read;
  bool is_valid = field.type() == UnknownField::TYPE_LENGTH_DELIMITED &&
                  entry.ParseFromString(field.length_delimited());
  for (int i = 0; is_valid && i < entry.field_count(); ++i) {
    const UnknownField& half = entry.field(i);
    is_valid = half.type() == UnknownField::TYPE_LENGTH_DELIMITED &&
               (half.number() == kKey || half.number() == kValue);
    if (is_valid) (half.number() == kKey ? read.name : read.value) = half.length_delimited();
  }
  if (!is_valid)
    return absl::InvalidArgumentError("an option that is set by its name is malformed");
  return read;
}

void AppendOverride(const CompileOption& option, const std::string& value, UnknownFieldSet& to) {
  const auto serialized = [](const UnknownFieldSet& fields) {
    std::string bytes;
    fields.SerializeToString(&bytes);
    return bytes;
  };
  UnknownFieldSet text, entry;
  text.AddLengthDelimited(1, NamedValue(option, value));
  entry.AddLengthDelimited(1, std::string(option.name));
  entry.AddLengthDelimited(2, serialized(text));
  to.AddLengthDelimited(kOverrides, serialized(entry));
}

// The elements of two lists, each once, in order.
std::string Union(const std::string& one, const std::string& other) {
  std::set<std::string> elements;
  for (const std::string& list : {one, other})
    for (const auto& each : absl::StrSplit(list, ',', absl::SkipEmpty())) elements.emplace(each);
  return absl::StrJoin(elements, ",");
}

// Settles the options by name. One that the debug options have is set there, as XLA would do; the others are returned
// by number.
absl::StatusOr<Settled> SettleOverrides(const UnknownFieldSet& fields, const OptionsHost& host,
                                        std::optional<Settled>& debug) {
  std::map<std::string, std::string>
      by_name;  // the last one of a name wins, as in a map of protobuf
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() != kOverrides) continue;
    GANGWAY_ASSIGN_OR_RETURN(Override read, ReadEntry(fields.field(i)));
    by_name[std::move(read.name)] = std::move(read.value);
  }
  Settled rest;
  for (const auto& [name, serialized] : by_name) {
    const CompileOption* const option = FindOption(name);
    if (option == nullptr) return Refused(name, "Gangway does not know it", kSeeTheList);
    GANGWAY_ASSIGN_OR_RETURN(const std::string value, ReadOverride(*option, serialized));
    GANGWAY_ASSIGN_OR_RETURN(std::optional<std::string> kept, Settle(*option, value, host));
    const bool is_kept = option->rule == OptionRule::kProgram || option->rule == OptionRule::kGpu;
    if (!kept || !is_kept) continue;  // the devices' runtime has its own value
    if (debug && option->kind == OptionKind::kTexts) {
      std::string& all = (*debug)[option->number];
      all = Union(all, *kept);
    } else if (debug && debug->contains(option->number)) {
      (*debug)[option->number] = *std::move(kept);
    } else {
      rest[option->number] = *std::move(kept);
    }
  }
  return rest;
}

// --- The fields around them ---

enum class FieldRule {
  kLeftOut,
  kLeftOutOnCpu,
  kRefused,
  kOneProcess,
  kEffort,
  kLevel,
  kPrecision
};

struct BuildField {
  int number;
  const char* name;
  FieldRule rule;
};
// Fields that our subset of the protos leaves out. Those that are refused may be sent without a value.
constexpr BuildField kBuildFields[] = {
    {7, "use_auto_spmd_partitioning", FieldRule::kRefused},
    {8, "deduplicate_hlo", FieldRule::kLeftOut},
    {10, "alias_passthrough_params", FieldRule::kRefused},
    {13, "comp_envs", FieldRule::kRefused},
    {14, "fdo_profile", FieldRule::kLeftOutOnCpu},
    {15, "device_memory_size", FieldRule::kLeftOut},
    {16, "auto_spmd_partitioning_mesh_shape", FieldRule::kRefused},
    {17, "auto_spmd_partitioning_mesh_ids", FieldRule::kRefused},
    {20, "exec_time_optimization_effort", FieldRule::kEffort},
    {21, "memory_fitting_effort", FieldRule::kEffort},
    {22, "process_index", FieldRule::kRefused},
    {23, "process_count", FieldRule::kOneProcess},
    {24, "optimization_level", FieldRule::kLevel},
    {25, "memory_fitting_level", FieldRule::kLevel},
    {26, "slice_size", FieldRule::kRefused},
    {27, "gpu_topology", FieldRule::kRefused},
};
constexpr BuildField kOptionsFields[] = {
    {6, "serialized_multi_slice_config", FieldRule::kRefused},
    {8, "target_config", FieldRule::kRefused},
    {9, "allow_in_place_mlir_modification", FieldRule::kLeftOut},
    {10, "matrix_unit_operand_precision", FieldRule::kPrecision},
    {11, "compiler_variant", FieldRule::kRefused},
    {12, "individually_defined_output_indices", FieldRule::kRefused},
};

bool HasValue(const UnknownField& field) {
  switch (field.type()) {
    case UnknownField::TYPE_VARINT:
      return field.varint() != 0;
    case UnknownField::TYPE_LENGTH_DELIMITED:
      return !field.length_delimited().empty();
    default:
      return true;
  }
}

bool IsAccepted(FieldRule rule, const UnknownField& field) {
  const bool is_varint = field.type() == UnknownField::TYPE_VARINT;
  const uint64_t number = is_varint ? field.varint() : UINT64_MAX;
  constexpr uint64_t kLevels[] = {0, 9, 19, 29, 39};  // XLA's EffortLevel
  constexpr uint64_t kPrecisions = 3;
  switch (rule) {
    case FieldRule::kOneProcess:
      return number <= 1;
    case FieldRule::kLevel:
      return std::find(std::begin(kLevels), std::end(kLevels), number) != std::end(kLevels);
    case FieldRule::kPrecision:
      return number < kPrecisions;
    case FieldRule::kEffort:
      return field.type() == UnknownField::TYPE_FIXED32 &&
             std::abs(std::bit_cast<float>(field.fixed32())) <= 1;  // false for NaN
    default:
      return !HasValue(field);
  }
}

// Moves the fields that are allowed from `fields` to `allowed`, in the order of their numbers. `own` is a field that is
// read elsewhere.
template <size_t kCount>
absl::Status AllowFields(const char* message, const BuildField (&rules)[kCount], int own,
                         const OptionsHost& host, const UnknownFieldSet& fields,
                         UnknownFieldSet& allowed) {
  std::map<int, const UnknownField*> kept;  // the last one of a number wins
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == own) continue;
    const BuildField* const rule =
        std::find_if(std::begin(rules), std::end(rules),
                     [&field](const BuildField& each) { return each.number == field.number(); });
    if (rule == std::end(rules)) {
      return Refused(absl::StrCat("field ", field.number(), " of ", message),
                     "Gangway does not know it", kSeeTheList);
    }
    if (rule->rule == FieldRule::kLeftOut ||
        (rule->rule == FieldRule::kLeftOutOnCpu && IsCpu(host)))
      continue;
    if (!IsAccepted(rule->rule, field))
      return Refused(rule->name, "a script may not set it to this value", kSeeTheList);
    if (HasValue(field)) kept[rule->number] = &field;
  }
  for (const auto& [number, field] : kept) allowed.AddField(*field);
  return absl::OkStatus();
}

bool HasUnknown(const Message& message) {
  return !message.GetReflection()->GetUnknownFields(message).empty();
}

bool IsRowMajor(const ShapeProto& shape) {
  const LayoutProto& layout = shape.layout();
  if (HasUnknown(layout) || layout.tiles_size() > 0 || layout.memory_space() != 0 ||
      layout.element_size_in_bits() < 0 || layout.element_size_in_bits() > 8)
    return false;
  if (!shape.has_layout() || layout.minor_to_major().empty()) return true;
  if (layout.minor_to_major_size() != shape.dimensions_size()) return false;
  for (int i = 0; i < layout.minor_to_major_size(); ++i)
    if (layout.minor_to_major(i) != layout.minor_to_major_size() - 1 - i) return false;
  return true;
}

std::span<const int64_t> Dimensions(const ShapeProto& shape) {
  return {shape.dimensions().data(), static_cast<size_t>(shape.dimensions_size())};
}

absl::Status CheckShape(const char* name, const ShapeProto& shape, bool may_be_tuple = false) {
  constexpr int kRankMax = 64;
  const bool is_tuple = may_be_tuple && shape.element_type() == TYPE_TUPLE;
  const bool is_plain =
      !HasUnknown(shape) && shape.dimensions_size() <= kRankMax && IsRowMajor(shape) &&
      std::none_of(shape.is_dynamic_dimension().begin(), shape.is_dynamic_dimension().end(),
                   [](bool is_dynamic) { return is_dynamic; }) &&
      (is_tuple ? shape.tuple_shapes_size() <= kListMax && shape.dimensions().empty()
                : shape.tuple_shapes().empty());
  if (!is_plain || (!is_tuple && !DenseBytes(shape.element_type(), Dimensions(shape)).ok())) {
    return Refused(name, "the cluster's arrays have static shapes and are row-major",
                   "leave it out, or ask for a layout with jax.experimental.layout");
  }
  for (const ShapeProto& part : shape.tuple_shapes())
    GANGWAY_RETURN_IF_ERROR(CheckShape(name, part));
  return absl::OkStatus();
}

absl::Status AllowKnown(CompileOptionsProto& options, const OptionsHost& host) {
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  if (options.argument_layouts_size() > kListMax ||
      build.allow_spmd_sharding_propagation_to_output_size() > kListMax ||
      build.allow_spmd_sharding_propagation_to_parameters_size() > kListMax)
    return absl::InvalidArgumentError("the compile options have more elements than any program");
  for (const ShapeProto& shape : options.argument_layouts())
    GANGWAY_RETURN_IF_ERROR(CheckShape("argument_layouts", shape));
  if (build.has_result_layout())
    GANGWAY_RETURN_IF_ERROR(CheckShape("result_layout", build.result_layout(), true));
  if (options.parameter_is_tupled_arguments())
    return Refused("parameter_is_tupled_arguments", "the cluster passes arrays one by one",
                   "leave it out");
  if (build.run_backend_only())
    return Refused("run_backend_only", "XLA would trust the program as if it had written it",
                   "leave it out");
  for (const int64_t count : {build.num_replicas(), build.num_partitions()}) {
    if (count < 0 || count > kPositionsMax)
      return Refused("num_replicas and num_partitions", "they are out of range",
                     absl::StrCat("each may be from 1 to ", kPositionsMax));
  }
  if (IsCpu(host)) options.clear_profile_version();
  build.set_device_ordinal(-1);  // any
  build.set_num_replicas(std::max<int64_t>(1, build.num_replicas()));
  build.set_num_partitions(std::max<int64_t>(1, build.num_partitions()));
  build.clear_device_assignment();
  options.clear_argument_layouts();  // row-major, as arrays are without them
  build.clear_result_layout();
  options.clear_compile_portable_executable();  // it has positions
  return absl::OkStatus();
}

// The debug options; none: the client leaves all of them to the cluster.
std::optional<std::string> DebugOptions(const UnknownFieldSet& build) {
  std::optional<std::string> debug;
  for (int i = 0; i < build.field_count(); ++i) {
    const UnknownField& field = build.field(i);
    if (field.number() != kDebugOptions || field.type() != UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    debug = absl::StrCat(debug.value_or(""), field.length_delimited());  // protobuf merges them
  }
  return debug;
}

}  // namespace

absl::StatusOr<std::string> AllowedOptions(std::string_view serialized, const OptionsHost& host) {
  CompileOptionsProto options;
  if (serialized.size() > kOptionsBytesMax ||
      !options.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())))
    return absl::InvalidArgumentError("the compile options are not XLA's");
  GANGWAY_RETURN_IF_ERROR(AllowKnown(options, host));
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  UnknownFieldSet& of_build = *build.GetReflection()->MutableUnknownFields(&build);
  UnknownFieldSet& of_options = *options.GetReflection()->MutableUnknownFields(&options);

  std::optional<Settled> debug;
  if (const auto bytes = DebugOptions(of_build)) {
    GANGWAY_ASSIGN_OR_RETURN(debug, SettleDebugOptions(*bytes, host));
  }
  GANGWAY_ASSIGN_OR_RETURN(const Settled by_name, SettleOverrides(of_options, host, debug));

  UnknownFieldSet new_build, new_options;
  if (debug) {
    UnknownFieldSet fields;
    for (const auto& [number, value] : *debug) WriteValue(*FindOption(number), value, fields);
    fields.SerializeToString(new_build.AddLengthDelimited(kDebugOptions));
  }
  GANGWAY_RETURN_IF_ERROR(AllowFields("ExecutableBuildOptionsProto", kBuildFields, kDebugOptions,
                                      host, of_build, new_build));
  for (const auto& [number, value] : by_name)
    AppendOverride(*FindOption(number), value, new_options);
  GANGWAY_RETURN_IF_ERROR(AllowFields("CompileOptionsProto", kOptionsFields, kOverrides, host,
                                      of_options, new_options));
  of_build.Swap(&new_build);
  of_options.Swap(&new_options);
  return options.SerializeAsString();
}

absl::Status CheckPropagation(std::string_view serialized, const ProgramShapeProto& shape) {
  CompileOptionsProto options;
  if (serialized.size() > kOptionsBytesMax ||
      !options.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())))
    return absl::InvalidArgumentError("the compile options are not XLA's");
  const ExecutableBuildOptionsProto& build = options.executable_build_options();
  const ShapeProto& result = shape.result();
  const bool is_tuple = result.element_type() == TYPE_TUPLE;
  const auto check = [](const char* name, int count, int wanted) {
    if (count <= 1 || count == wanted) return absl::OkStatus();
    return Refused(name, absl::StrCat("it has ", count, " elements"),
                   absl::StrCat("the program needs ", wanted));
  };
  GANGWAY_RETURN_IF_ERROR(check("allow_spmd_sharding_propagation_to_parameters",
                                build.allow_spmd_sharding_propagation_to_parameters_size(),
                                shape.parameters_size()));
  return check("allow_spmd_sharding_propagation_to_output",
               build.allow_spmd_sharding_propagation_to_output_size(),
               is_tuple ? result.tuple_shapes_size() : 1);
}

}  // namespace gangway::xla
