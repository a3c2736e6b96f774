// How many compiles and compiler processes a controller has at most, and how long they may take (compile_queue.h).
#ifndef GANGWAY_CONTROLLER_CORE_COMPILE_LIMITS_H_
#define GANGWAY_CONTROLLER_CORE_COMPILE_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "gangway/controller/core/compile_blame.h"

namespace gangway::controller {

struct CompileLimits {
  uint32_t compilers = 1;                          // processes
  uint32_t compiles_max = 1024;                    // over all sessions
  uint64_t program_bytes_max = uint64_t{4} << 30;  // likewise
  uint64_t session_bytes_max = uint64_t{1} << 30;  // of the programs of one session
  uint64_t lookup_bytes_max =
      uint64_t{64} << 20;  // of programs that are being looked up; one may exceed it alone
  uint64_t large_bytes_min = uint64_t{256} << 10;      // of a large program
  std::chrono::milliseconds compiler_wait_max{30000};  // for a compiler that is down
  std::chrono::milliseconds compile_max{600000};
  bool isolates = false;  // a process compiles for one owner only, and nothing is looked up
  size_t suspects_max = kCompileSuspectsMax;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_COMPILE_LIMITS_H_
