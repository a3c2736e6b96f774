// OpenBLAS, loaded when a process first needs linear algebra: a `gangway status` does not pay for
// it, and a host without it runs everything else. Loading sets OPENBLAS_NUM_THREADS=1 in the
// environment, since the library starts its threads when it is loaded; so call it before threads
// that read the environment do much. Internal to device/pjrt/linalg.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_
#define GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_

#include <string>

#include "absl/status/status.h"

namespace gangway::device::linalg {

// Loads `path` and looks up every routine of lapack_routines.h. Once per process and path; any
// thread. NOT_FOUND: no such library, or one without a routine. FAILED_PRECONDITION: a flavour that
// several threads must not call at once.
absl::Status LoadOpenBlas(const std::string& path);

// The flavour that the build was made for.
std::string DefaultOpenBlasPath();

}  // namespace gangway::device::linalg

#endif  // GANGWAY_DEVICE_PJRT_LINALG_OPENBLAS_H_
