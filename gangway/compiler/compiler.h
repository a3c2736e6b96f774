// The compiler process: connects to the head as ROLE_COMPILER and answers each CompileRequest with
// a CompileResult, in the order of the requests. It keeps nothing but its cache on disk: whoever
// supervises it starts it again after a crash of the backend plugin, and the head sends what was
// not answered once more.
#ifndef GANGWAY_COMPILER_COMPILER_H_
#define GANGWAY_COMPILER_COMPILER_H_

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/status.h"

#include "gangway/compiler/executable_cache.h"
#include "gangway/device/device.h"
#include "gangway/transport/transport.h"

namespace gangway::compiler {

struct CompilerOptions {
  transport::Transport* transport = nullptr;  // not owned
  std::string head_address;
  std::string token;                   // of the cluster
  device::Backend* backend = nullptr;  // not owned; as many devices as the largest slice
  std::string plugin_path;             // of the backend, part of the cache's key; empty: no plugin
  std::string cache_folder = DefaultCacheFolder();  // empty: none
  uint64_t cache_bytes_max = uint64_t{2} << 30;
  std::string name = "compiler";
  std::chrono::milliseconds connect_limit{10000};  // until the head has answered the Hello
};

// Requests beyond these get RESOURCE_EXHAUSTED at once.
inline constexpr int kPendingRequestsMax = 1024;

// Runs until `stop` (OK), or until the link to the head ends, or it refuses the Hello (that
// status). Returns after the compile in progress, which nothing can interrupt: to stop at once, end
// the process. Not on a thread of the transport. UNAVAILABLE, DEADLINE_EXCEEDED: no head there
// within connect_limit. Errors of CompilerIdentity.
absl::Status RunCompiler(const CompilerOptions& options, std::stop_token stop);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILER_H_
