// Errors that another start of the process meets again, because the machine or the options cause them: no GPU is there,
// or the plugin has another version. A supervisor then gives up at once, not after some tries.
#ifndef GANGWAY_BASE_LASTING_ERROR_H_
#define GANGWAY_BASE_LASTING_ERROR_H_

#include "absl/status/status.h"

namespace gangway {

// The same error with that mark, a payload, which AddContext and the macros of status.h keep.
absl::Status Lasting(absl::Status error);
bool IsLasting(const absl::Status& error);

}  // namespace gangway

#endif  // GANGWAY_BASE_LASTING_ERROR_H_
