// For plugins that tests make of a real one: its functions, some of them replaced.
#ifndef GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_
#define GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "pjrt_c_api.h"

namespace gangway::device {

// Of the plugin at `path`. One that cannot be loaded ends the process.
inline const PJRT_Api* LoadRealPlugin(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_
