// The name of a compiled program in the disk cache: a SHA-256 over everything that its machine code
// depends on. Two requests with the same key give interchangeable executables; where in doubt
// something is in the key.
#ifndef GANGWAY_COMPILER_CACHE_KEY_H_
#define GANGWAY_COMPILER_CACHE_KEY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// 64 hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

// What does not change while the process lives: the cache's format, the plugin (its file's size and
// time of change, its version), the settings that XLA reads from the environment (NPROC, XLA_FLAGS)
// and the CPU's features. NOT_FOUND: no plugin file there. An empty path stands for a backend
// without one.
absl::StatusOr<std::string> CompilerIdentity(const device::Capabilities& capabilities,
                                             const std::string& plugin_path);

// Of the program, its options without their device assignment, and the number of devices. Not of
// the devices that it will run on: an executable loads on any of them. INVALID_ARGUMENT: the
// options are none.
absl::StatusOr<std::string> CacheKey(const std::string& compiler_identity,
                                     const wire::CompileRequest& request);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CACHE_KEY_H_
