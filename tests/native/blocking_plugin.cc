// The real PJRT plugin, except that a test can block Execute: while the folder GANGWAY_TEST_BLOCK_DIR
// holds a FIFO named after the process id, a thread that calls Execute blocks in the kernel until the
// test opens the other end. The same holds for Compile, of programs whose text has the name
// blocks_the_compiler. A program whose text has the name ends_the_compiler ends the process that compiles it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

void Block() {
  const char* folder = std::getenv("GANGWAY_TEST_BLOCK_DIR");
  if (folder == nullptr) return;
  const std::string fifo = std::string(folder) + "/" + std::to_string(getpid());
  if (const int fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) close(fd);
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  const std::string_view code(args->program->code, args->program->code_size);
  if (code.find("ends_the_compiler") != std::string_view::npos) std::abort();
  if (code.find("blocks_the_compiler") != std::string_view::npos) Block();
  return Real()->PJRT_Client_Compile(args);
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  Block();
  return Real()->PJRT_LoadedExecutable_Execute(args);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Compile = &Compile;
    copy.PJRT_LoadedExecutable_Execute = &Execute;
    return copy;
  }();
  return &api;
}
