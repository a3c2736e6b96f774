// Implementation of compile_options_edit.h.
#include "gangway/device/pjrt/compile_options_edit.h"

#include <google/protobuf/unknown_field_set.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/status.h"

namespace gangway::device {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Field numbers of xla/pjrt/proto/compile_options.proto and xla_data.proto.
constexpr int kExecutableBuildOptions = 3;
constexpr int kDeviceOrdinal = 1;
constexpr int kNumReplicas = 4;
constexpr int kNumPartitions = 5;
constexpr int kDeviceAssignment = 9;
constexpr int kReplicaCount = 1;
constexpr int kComputationCount = 2;
constexpr int kComputationDevices = 3;
constexpr int kReplicaDeviceIds = 1;
constexpr int kPortable = 4;
constexpr int kEnvOptionOverrides = 7;
constexpr int kMapKey = 1, kMapValue = 2;
constexpr int kOverrideString = 1;
constexpr int kDebugOptions = 3, kDisabledPasses = 30, kOnlyPasses = 124;
constexpr std::string_view kDisablePasses = "xla_disable_hlo_passes";
constexpr std::string_view kEnableOnly = "xla_enable_hlo_passes_only";

absl::Status Parse(std::string_view bytes, UnknownFieldSet* fields) {
  if (fields->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the compile options (", bytes.size(),
                   " bytes) are not a serialized xla.CompileOptionsProto"));
}

// All values of a field of bytes, in order.
std::vector<std::string> BytesOf(const UnknownFieldSet& fields, int number) {
  std::vector<std::string> values;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED)
      values.push_back(field.length_delimited());
  }
  return values;
}

// Parses the options and the build options inside them. Concatenation merges repeated build
// options, as protobuf does.
absl::Status ParseBoth(std::string_view bytes, UnknownFieldSet* options, UnknownFieldSet* build) {
  GANGWAY_RETURN_IF_ERROR(Parse(bytes, options));
  return Parse(absl::StrJoin(BytesOf(*options, kExecutableBuildOptions), ""), build);
}

const UnknownField* Find(const UnknownFieldSet& fields, int number) {
  const UnknownField* last = nullptr;  // the last one wins, as in protobuf
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == number && fields.field(i).type() == UnknownField::TYPE_VARINT) {
      last = &fields.field(i);
    }
  }
  return last;
}

absl::StatusOr<LogicalShape> ShapeOf(const UnknownFieldSet& build) {
  LogicalShape shape;
  if (const UnknownField* found = Find(build, kNumReplicas); found && found->varint() != 0) {
    shape.num_replicas = static_cast<int64_t>(found->varint());
  }
  if (const UnknownField* found = Find(build, kNumPartitions); found && found->varint() != 0) {
    shape.num_partitions = static_cast<int64_t>(found->varint());
  }
  constexpr int64_t kMax = 1 << 20;
  if (shape.num_replicas < 1 || shape.num_replicas > kMax || shape.num_partitions < 1 ||
      shape.num_partitions > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the compile options ask for ", shape.num_replicas, " replicas x ",
                     shape.num_partitions, " partitions; each must be 1 .. ", kMax));
  }
  return shape;
}

// Whether the options say which of XLA's passes run.
absl::StatusOr<bool> ChoosesPasses(std::string_view compile_options) {
  UnknownFieldSet options, build, debug;
  GANGWAY_RETURN_IF_ERROR(ParseBoth(compile_options, &options, &build));
  GANGWAY_RETURN_IF_ERROR(Parse(absl::StrJoin(BytesOf(build, kDebugOptions), ""), &debug));
  for (int list : {kDisabledPasses, kOnlyPasses})
    if (!BytesOf(debug, list).empty()) return true;
  for (const std::string& entry : BytesOf(options, kEnvOptionOverrides)) {
    UnknownFieldSet named;
    GANGWAY_RETURN_IF_ERROR(Parse(entry, &named));
    for (const std::string& name : BytesOf(named, kMapKey))
      if (name == kDisablePasses || name == kEnableOnly) return true;
  }
  return false;
}

std::string Serialize(const UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

std::string DeviceAssignment(const LogicalShape& shape, std::span<const int64_t> device_ids) {
  UnknownFieldSet assignment;
  assignment.AddVarint(kReplicaCount, static_cast<uint64_t>(shape.num_replicas));
  assignment.AddVarint(kComputationCount, static_cast<uint64_t>(shape.num_partitions));
  for (int64_t partition = 0; partition < shape.num_partitions; ++partition) {
    UnknownFieldSet computation;
    for (int64_t replica = 0; replica < shape.num_replicas; ++replica) {
      computation.AddVarint(
          kReplicaDeviceIds,
          static_cast<uint64_t>(device_ids[replica * shape.num_partitions + partition]));
    }
    assignment.AddLengthDelimited(kComputationDevices, Serialize(computation));
  }
  return Serialize(assignment);
}

}  // namespace

absl::StatusOr<LogicalShape> ReadLogicalShape(std::string_view compile_options) {
  UnknownFieldSet options, build;
  GANGWAY_RETURN_IF_ERROR(ParseBoth(compile_options, &options, &build));
  GANGWAY_ASSIGN_OR_RETURN(LogicalShape shape, ShapeOf(build));
  const UnknownField* const portable = Find(options, kPortable);
  shape.is_portable = portable != nullptr && portable->varint() != 0;
  return shape;
}

absl::StatusOr<std::string> WithoutDeviceAssignment(std::string_view compile_options) {
  UnknownFieldSet options, build;
  GANGWAY_RETURN_IF_ERROR(ParseBoth(compile_options, &options, &build));
  build.DeleteByNumber(kDeviceAssignment);
  if (Find(build, kDeviceOrdinal) == nullptr) build.AddVarint(kDeviceOrdinal, ~uint64_t{0});
  options.DeleteByNumber(kExecutableBuildOptions);
  options.AddLengthDelimited(kExecutableBuildOptions, Serialize(build));
  return Serialize(options);
}

absl::StatusOr<std::string> WithDeviceAssignment(std::string_view compile_options,
                                                 std::span<const int64_t> device_ids) {
  UnknownFieldSet options, build;
  GANGWAY_RETURN_IF_ERROR(ParseBoth(compile_options, &options, &build));
  GANGWAY_ASSIGN_OR_RETURN(LogicalShape shape, ShapeOf(build));
  if (static_cast<int64_t>(device_ids.size()) != shape.num_replicas * shape.num_partitions) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program has ", shape.num_replicas, " replicas x ", shape.num_partitions,
                     " partitions, but ", device_ids.size(),
                     " devices were given; give one per logical position"));
  }
  for (int number : {kDeviceAssignment, kNumReplicas, kNumPartitions}) build.DeleteByNumber(number);
  // An absent ordinal would read as device 0; -1 is XLA's "any".
  if (Find(build, kDeviceOrdinal) == nullptr) build.AddVarint(kDeviceOrdinal, ~uint64_t{0});
  build.AddVarint(kNumReplicas, static_cast<uint64_t>(shape.num_replicas));
  build.AddVarint(kNumPartitions, static_cast<uint64_t>(shape.num_partitions));
  build.AddLengthDelimited(kDeviceAssignment, DeviceAssignment(shape, device_ids));
  options.DeleteByNumber(kExecutableBuildOptions);
  options.AddLengthDelimited(kExecutableBuildOptions, Serialize(build));
  return Serialize(options);
}

std::string WithXlaOption(std::string_view compile_options, std::string_view name,
                          std::string_view value) {
  UnknownFieldSet text, entry, appended;
  text.AddLengthDelimited(kOverrideString, std::string(value));
  entry.AddLengthDelimited(kMapKey, std::string(name));
  entry.AddLengthDelimited(kMapValue, Serialize(text));
  appended.AddLengthDelimited(kEnvOptionOverrides, Serialize(entry));
  return absl::StrCat(std::string(compile_options), Serialize(appended));  // the last one wins
}

std::string WithoutXlaPass(std::string_view compile_options, std::string_view pass) {
  const auto chooses = ChoosesPasses(compile_options);
  if (!chooses.ok() || *chooses) return std::string(compile_options);
  return WithXlaOption(compile_options, kDisablePasses, pass);
}

}  // namespace gangway::device
