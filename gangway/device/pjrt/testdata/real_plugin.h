// Loads the real plugin, for test plugins that replace some of its functions.
#ifndef GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_
#define GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "pjrt_c_api.h"

namespace gangway::device {

// The function table of the plugin at `path`, which is relative to the folder of the library that calls this. Aborts
// the process if the plugin cannot be loaded.
inline const PJRT_Api* LoadRealPlugin(const char* path) {
  static const char here = 0;
  Dl_info caller = {};
  dladdr(&here, &caller);
  std::error_code error;  // a test may have named the library by a link
  const auto own = std::filesystem::canonical(caller.dli_fname, error);
  void* library = dlopen((own.parent_path() / path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
}

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_TESTDATA_REAL_PLUGIN_H_
