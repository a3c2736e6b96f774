// Edits the fields of a serialized xla.CompileOptionsProto that the device layer controls: the
// device assignment, and XLA options that must have a certain value. All other fields, known or
// not, pass through unchanged. Pure functions.
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
  bool is_portable = false;  // compiled for no device, to run on any
};

// The numbers of logical positions in the options (absent or 0 counts as 1). INVALID_ARGUMENT: not
// an xla.CompileOptionsProto.
absl::StatusOr<LogicalShape> ReadLogicalShape(std::string_view compile_options);

// The options with their device assignment replaced: logical position i = replica x num_partitions
// + partition runs on runtime device `device_ids[i]`. INVALID_ARGUMENT: not an
// xla.CompileOptionsProto, or not one device per position.
absl::StatusOr<std::string> WithDeviceAssignment(std::string_view compile_options,
                                                 std::span<const int64_t> device_ids);

// The options without a device assignment, as a portable program needs them. INVALID_ARGUMENT: not an
// xla.CompileOptionsProto.
absl::StatusOr<std::string> WithoutDeviceAssignment(std::string_view compile_options);

// The options with XLA's option `name` (a field of xla.DebugOptions) set to `value`, over any
// earlier value. A plugin without that option rejects them with INVALID_ARGUMENT and names it.
std::string WithXlaOption(std::string_view compile_options, std::string_view name,
                          std::string_view value);

// The options without the pass of this name. Those that choose passes themselves are left as they are: the option
// replaces their list, and XLA ends the process if one list says which passes run, and another one which do not. So are
// those that cannot be parsed, which the runtime refuses.
std::string WithoutXlaPass(std::string_view compile_options, std::string_view pass);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_COMPILE_OPTIONS_EDIT_H_
