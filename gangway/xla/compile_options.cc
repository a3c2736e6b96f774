// Implementation of compile_options.h.
#include "gangway/xla/compile_options.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::xla {
namespace {

using ::google::protobuf::UnknownField;
using ::google::protobuf::UnknownFieldSet;

// Numbers of fields that our subset leaves out: the first two of ExecutableBuildOptionsProto, then of the whole.
constexpr int kDebugOptions = 3;
constexpr int kDeviceMemorySize = 15;
constexpr int kInPlaceModification = 9;
constexpr int kOverrides = 7;     // a map from names to messages
constexpr int kOverrideText = 1;  // of such a message

// Whether the field may be an entry of a map: a key and an optional value.
bool MayBeMapEntry(const UnknownField& field) {
  UnknownFieldSet entry;
  if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED ||
      !entry.ParseFromString(field.length_delimited()) || entry.field_count() == 0 ||
      entry.field_count() > 2) {
    return false;
  }
  for (int i = 0; i < entry.field_count(); ++i) {
    if (entry.field(i).number() != i + 1) return false;
  }
  return true;
}

// Sorts each run of entries of one map by their bytes.
void SortMaps(UnknownFieldSet& fields) {
  for (int begin = 0, end = 0; begin < fields.field_count(); begin = std::max(end, begin + 1)) {
    std::vector<std::string> entries;
    for (end = begin; end < fields.field_count(); ++end) {
      const UnknownField& field = fields.field(end);
      if (field.number() != fields.field(begin).number() || !MayBeMapEntry(field)) break;
      entries.push_back(field.length_delimited());
    }
    std::sort(entries.begin(), entries.end());
    for (size_t i = 0; i < entries.size(); ++i)
      fields.mutable_field(begin + static_cast<int>(i))->set_length_delimited(entries[i]);
  }
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> AssignedDevices(const CompileOptionsProto& options) {
  const DeviceAssignmentProto& assignment = options.executable_build_options().device_assignment();
  const int partitions = assignment.computations_size();
  if (assignment.computation_count() != partitions) {
    return absl::InvalidArgumentError(absl::StrCat("a device assignment of ",
                                                   assignment.computation_count(),
                                                   " partitions lists ", partitions));
  }
  std::vector<uint32_t> devices;
  absl::flat_hash_set<int64_t> seen;
  for (const auto& computation : assignment.computations()) {
    if (computation.replica_device_ids_size() != assignment.replica_count()) {
      return absl::InvalidArgumentError(absl::StrCat("a device assignment of ",
                                                     assignment.replica_count(), " replicas lists ",
                                                     computation.replica_device_ids_size()));
    }
    for (int64_t device : computation.replica_device_ids()) {
      if (device < 0 || device > UINT32_MAX || !seen.insert(device).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("device ", device, " of a device assignment is repeated or invalid"));
      }
    }
  }
  for (int replica = 0; partitions > 0 && replica < assignment.replica_count(); ++replica) {
    for (const auto& computation : assignment.computations()) {
      devices.push_back(static_cast<uint32_t>(computation.replica_device_ids(replica)));
    }
  }
  return devices;
}

absl::StatusOr<std::string> WithDevices(std::string_view serialized_options,
                                        std::span<const uint32_t> devices) {
  CompileOptionsProto options;
  if (serialized_options.size() > INT32_MAX ||
      !options.ParseFromArray(serialized_options.data(),
                              static_cast<int>(serialized_options.size()))) {
    return absl::InvalidArgumentError(
        "the compile options are not a serialized CompileOptionsProto");
  }
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.clear_device_assignment();
  if (!devices.empty()) {
    const int64_t replicas = std::max<int64_t>(1, build.num_replicas());
    const int64_t partitions = std::max<int64_t>(1, build.num_partitions());
    const int64_t count = static_cast<int64_t>(devices.size());
    if (replicas > count || partitions > count || replicas * partitions != count) {
      return absl::InvalidArgumentError(absl::StrCat("a program for ", replicas, " replicas x ",
                                                     partitions, " partitions was given ", count,
                                                     " devices"));
    }
    DeviceAssignmentProto& assignment = *build.mutable_device_assignment();
    assignment.set_replica_count(static_cast<int32_t>(replicas));
    assignment.set_computation_count(static_cast<int32_t>(partitions));
    for (int64_t partition = 0; partition < partitions; ++partition) {
      auto& computation = *assignment.add_computations();
      for (int64_t replica = 0; replica < replicas; ++replica) {
        computation.add_replica_device_ids(devices[replica * partitions + partition]);
      }
    }
  }
  return options.SerializeAsString();
}

void DropLocalOptions(CompileOptionsProto& options) {
  options.GetReflection()->MutableUnknownFields(&options)->DeleteByNumber(kInPlaceModification);
  if (!options.has_executable_build_options()) return;
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.GetReflection()->MutableUnknownFields(&build)->DeleteByNumber(kDeviceMemorySize);
}

std::string TakeOption(std::string_view name, CompileOptionsProto& options) {
  UnknownFieldSet& fields = *options.GetReflection()->MutableUnknownFields(&options);
  for (int i = 0; i < fields.field_count(); ++i) {
    UnknownFieldSet entry, value;
    if (fields.field(i).number() != kOverrides || !MayBeMapEntry(fields.field(i)) ||
        !entry.ParseFromString(fields.field(i).length_delimited()) || entry.field_count() != 2 ||
        entry.field(0).type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        entry.field(0).length_delimited() != name ||
        entry.field(1).type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        !value.ParseFromString(entry.field(1).length_delimited()) || value.field_count() != 1 ||
        value.field(0).number() != kOverrideText ||
        value.field(0).type() != UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    std::string text = value.field(0).length_delimited();
    fields.DeleteSubrange(i, 1);
    return text;
  }
  return "";
}

absl::StatusOr<std::string> CanonicalOptions(std::string_view serialized_options) {
  GANGWAY_ASSIGN_OR_RETURN(std::string without, WithDevices(serialized_options, {}));
  CompileOptionsProto options;
  options.ParseFromString(without);
  SortMaps(*options.GetReflection()->MutableUnknownFields(&options));  // overrides of options
  ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  UnknownFieldSet& unknown = *build.GetReflection()->MutableUnknownFields(&build);
  for (int i = 0; i < unknown.field_count(); ++i) {
    UnknownField& field = *unknown.mutable_field(i);
    UnknownFieldSet debug;
    if (field.number() != kDebugOptions || field.type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        !debug.ParseFromString(field.length_delimited())) {
      continue;
    }
    SortMaps(debug);
    debug.SerializeToString(field.mutable_length_delimited());
  }
  return options.SerializeAsString();
}

}  // namespace gangway::xla
