// For `gangway run --connect`: starts the front door beside the script, in a process that ends with
// this one, also after this process has become Python.
#ifndef GANGWAY_CLI_REMOTE_DOOR_H_
#define GANGWAY_CLI_REMOTE_DOOR_H_

#include <string>

#include "absl/status/statusor.h"

namespace gangway::cli {

// Returns the front door's port on loopback once it listens. Sets GANGWAY_TOKEN, which its clients
// present, for this process and its children. Blocks for at most 30 s. UNAVAILABLE: the front door
// did not start; it has logged the reason on standard error.
absl::StatusOr<int> StartRemoteDoor(const std::string& connect, const std::string& tls);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_REMOTE_DOOR_H_
