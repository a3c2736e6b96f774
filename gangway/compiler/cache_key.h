// The name of a compiled program in the disk cache: a SHA-256 over everything that its machine code
// depends on. Two requests with the same key give interchangeable executables; an input that may
// matter is part of the key.
#ifndef GANGWAY_COMPILER_CACHE_KEY_H_
#define GANGWAY_COMPILER_CACHE_KEY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/collective/lowering/lowering.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// The part of the key that is fixed for the life of the process: the cache's format, the plugin
// (its file's size and modification time, its version), the settings that XLA reads from the
// environment (NPROC, XLA_FLAGS) and the CPU's features. An empty path means a backend without a
// plugin file. NOT_FOUND: the plugin file cannot be read.
absl::StatusOr<std::string> CompilerIdentity(const device::Capabilities& capabilities,
                                             const std::string& plugin_path);

// The key of a request: it covers the program, its options without their device assignment, the
// device count, whose collectives it uses, and the version of the lowering that takes them out. It does not cover the
// devices to run on, since an executable loads on any of them. INVALID_ARGUMENT: the options do not parse.
absl::StatusOr<std::string> CacheKey(const std::string& compiler_identity,
                                     const wire::CompileRequest& request,
                                     uint32_t lowering_version = collective::kLoweringVersion);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CACHE_KEY_H_
