// The real PJRT plugin, except that a test can block Execute: while the folder GANGWAY_TEST_BLOCK_DIR
// holds a FIFO named after the process id, a thread that calls Execute blocks in the kernel until the
// test opens the other end.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (const char* folder = std::getenv("GANGWAY_TEST_BLOCK_DIR")) {
    const std::string fifo = std::string(folder) + "/" + std::to_string(getpid());
    if (const int fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) close(fd);
  }
  return Real()->PJRT_LoadedExecutable_Execute(args);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_LoadedExecutable_Execute = &Execute;
    return copy;
  }();
  return &api;
}
