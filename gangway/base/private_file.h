// Files that hold secrets: readable by their owner only.
//
// Threading: functions without state. Failure: a status that names the file and says what to do.
#ifndef GANGWAY_BASE_PRIVATE_FILE_H_
#define GANGWAY_BASE_PRIVATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway {

// NOT_FOUND: the file does not exist. PERMISSION_DENIED: other users can read it.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

// Writes the file atomically, for its owner only (0600).
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

}  // namespace gangway

#endif  // GANGWAY_BASE_PRIVATE_FILE_H_
