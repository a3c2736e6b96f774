// Implementation of openblas.h.
#include "gangway/device/pjrt/linalg/openblas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/base/package.h"
#include "gangway/base/status.h"
#include "gangway/device/pjrt/linalg/lapack_routines.h"

namespace gangway::device::linalg {
namespace {

constexpr int kWithThreadsOfPosix = 1;  // a value of openblas_get_parallel()

absl::Status LookUp(void* library, const std::string& path, const std::vector<Routine>& routines) {
  for (const Routine& routine : routines) {
    *routine.address = dlsym(library, routine.symbol);
    if (*routine.address == nullptr) {
      return absl::NotFoundError(absl::StrCat(path, " has no ", routine.symbol,
                                              "; install Debian's libopenblas0-pthread"));
    }
  }
  return absl::OkStatus();
}

absl::Status Load(const std::string& path) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  // Never unloaded: handlers may run until the process ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load OpenBLAS: ", dlerror(),
                                            "; install Debian's libopenblas0-pthread"));
  }
  decltype(openblas_get_parallel)* get_parallel = nullptr;
  decltype(openblas_set_num_threads)* set_num_threads = nullptr;
  GANGWAY_RETURN_IF_ERROR(
      LookUp(library, path,
             {{"openblas_get_parallel", reinterpret_cast<void**>(&get_parallel)},
              {"openblas_set_num_threads", reinterpret_cast<void**>(&set_num_threads)}}));
  if (get_parallel() != kWithThreadsOfPosix) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is not OpenBLAS's flavour with POSIX threads. Several threads may call "
                     "only that one at once; install libopenblas0-pthread"));
  }
  set_num_threads(1);
  for (const auto& routines :
       {Lapack<float>::Routines(), Lapack<double>::Routines(),
        Lapack<std::complex<float>>::Routines(), Lapack<std::complex<double>>::Routines()}) {
    GANGWAY_RETURN_IF_ERROR(LookUp(library, path, routines));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadOpenBlas(const std::string& path) {
  static Mutex mutex;
  static auto* const loaded = new std::string();
  MutexLock lock(mutex);
  if (*loaded == path) return absl::OkStatus();
  absl::Status status = Load(path);
  if (status.ok()) *loaded = path;
  return status;
}

std::string DefaultOpenBlasPath() {
  const std::string package = PackageFolder();
  return package.empty() ? GANGWAY_OPENBLAS_PATH : package + "/_libs/libopenblas.so.0";
}

}  // namespace gangway::device::linalg
