// Edits what belongs to the device layer in a serialized xla.CompileOptionsProto: which devices,
// and options of XLA's that must be what they are. All other fields, known or not, pass through
// untouched. Pure functions.
#ifndef GANGWAY_DEVICE_PJRT_COMPILE_OPTIONS_EDIT_H_
#define GANGWAY_DEVICE_PJRT_COMPILE_OPTIONS_EDIT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gangway::device {

struct LogicalShape {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
};

// How many logical positions the options ask for (absent or 0 counts as 1). INVALID_ARGUMENT: not
// such a proto.
absl::StatusOr<LogicalShape> ReadLogicalShape(std::string_view compile_options);

// The options with their device assignment replaced: logical position i = replica x num_partitions
// + partition runs on runtime device `device_ids[i]`. INVALID_ARGUMENT: not such a proto, or not as
// many devices as positions.
absl::StatusOr<std::string> WithDeviceAssignment(std::string_view compile_options,
                                                 std::span<const int64_t> device_ids);

// The options with XLA's option `name` (a field of xla.DebugOptions) set to `value`, whatever they
// said about it. A plugin that has no such option refuses them with INVALID_ARGUMENT, by its name.
std::string WithXlaOption(std::string_view compile_options, std::string_view name,
                          std::string_view value);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_COMPILE_OPTIONS_EDIT_H_
