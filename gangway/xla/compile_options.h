// Reads and rewrites XLA's compile options. Which of them a client may set: allowed_options.h. Pure functions.
#ifndef GANGWAY_XLA_COMPILE_OPTIONS_H_
#define GANGWAY_XLA_COMPILE_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/compile_options.pb.h"

namespace gangway::xla {

// Devices by logical position: position = replica x partitions + partition. Empty if the options
// assign none. INVALID_ARGUMENT: an assignment whose sizes disagree, a negative or repeated device.
absl::StatusOr<std::vector<uint32_t>> AssignedDevices(const CompileOptionsProto& options);

// The same options with `devices` as their assignment (none at all if empty). Fields that Gangway
// does not know survive. INVALID_ARGUMENT: not compile options, or another number of devices than
// replicas x partitions.
absl::StatusOr<std::string> WithDevices(std::string_view serialized_options,
                                        std::span<const uint32_t> devices);

// The same options without devices and with sorted map entries, so that equal options give equal
// bytes: the wire form of a protobuf map has no order, and clients send equal options in varying
// orders. Errors as WithDevices.
absl::StatusOr<std::string> CanonicalOptions(std::string_view serialized_options);

// Removes what jaxlib says about the calling process, which would make equal programs differ: the size of its devices'
// memory, which the workers' runtime knows itself, and whether its own copy of the program may be changed.
void DropLocalOptions(CompileOptionsProto& options);

// Removes the option of this name from those that a caller adds by name, and returns its text. Empty: there is none.
std::string TakeOption(std::string_view name, CompileOptionsProto& options);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_COMPILE_OPTIONS_H_
