// The compiler process: connects to the head as ROLE_COMPILER and answers each CompileRequest with
// a CompileResult: compiles in the order of the requests, and those that are cached (or that ask for
// no more than a lookup) at once. Its only state is its cache on disk: after a crash of the backend
// plugin, its supervisor restarts it and the head resends the unanswered requests.
#ifndef GANGWAY_COMPILER_COMPILER_H_
#define GANGWAY_COMPILER_COMPILER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"

#include "gangway/compiler/compile.h"
#include "gangway/compiler/executable_cache.h"
#include "gangway/device/device.h"
#include "gangway/transport/transport.h"

namespace gangway::compiler {

struct CompilerOptions {
  transport::Transport* transport = nullptr;  // not owned
  std::string head_address;
  std::string token;                   // of the cluster
  device::Backend* backend = nullptr;  // not owned; has as many devices as the largest slice
  OpenBackend open;  // partitions programs over several workers; null: they are refused
  device::Backend* converter = nullptr;  // not owned; as Compile takes it (compile.h)
  std::string plugin_path;  // of the backend, part of the cache's key; empty: no plugin
  std::string cache_folder = DefaultCacheFolder();  // empty: no cache
  uint64_t cache_bytes_max = uint64_t{2} << 30;
  std::string name = "compiler";
  uint32_t index = 0;  // of the cluster's compilers; beyond 0: a spare
  // Called once the link to the head is open, before the first program arrives: confines the process. Its error ends
  // the compiler. Null: nothing.
  std::function<absl::Status()> confine;
  // Of the process, while it compiles. A program that makes it need more is refused with RESOURCE_EXHAUSTED; then, and
  // when more than half of it is left after a compile, the head is told to replace the process. 0: no limit.
  uint64_t memory_bytes_max = 0;
  std::chrono::milliseconds connect_limit{10000};  // until the head has answered the Hello
};

// Requests beyond this number are rejected at once with RESOURCE_EXHAUSTED.
inline constexpr int kPendingRequestsMax = 1024;

// Runs until `stop` is requested (returns OK), the link to the head closes, or the head rejects the
// Hello (returns that status). It first finishes the compile in progress, which cannot be
// interrupted; to stop at once, end the process. Must not be called on a thread of the transport.
// UNAVAILABLE, DEADLINE_EXCEEDED: no head answered within connect_limit. Also the errors of
// CompilerIdentity.
absl::Status RunCompiler(const CompilerOptions& options, std::stop_token stop);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILER_H_
