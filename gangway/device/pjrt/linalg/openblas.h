// Loads OpenBLAS when a process first needs linear algebra: `gangway status` does not pay for it,
// and a host without it runs everything else. Loading sets OPENBLAS_NUM_THREADS=1 in the
// environment, because the library starts its threads while it loads. Load it before other threads
// read the environment. Internal to device/pjrt/linalg.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_
#define GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_

#include <string>

#include "absl/status/status.h"

namespace gangway::device::linalg {

// Loads `path` and looks up every routine of lapack_routines.h. Once per process and path; any
// thread. NOT_FOUND: the library does not exist or lacks a routine. FAILED_PRECONDITION: several
// threads must not call this flavour of the library at once.
absl::Status LoadOpenBlas(const std::string& path);

// Path of the library that the build was configured with.
std::string DefaultOpenBlasPath();

}  // namespace gangway::device::linalg

#endif  // GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_
