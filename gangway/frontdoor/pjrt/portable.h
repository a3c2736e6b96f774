// Compiling on the cluster, and executables that are bound to no device: a client asks for them with XLA's option
// compile_portable_executable, and each call names the device. The cluster compiles for devices, so an executable is
// made for each device at the first call on it.
//
// Threading: any thread. Compile blocks until the cluster has answered; so does the first call on a device, and with it
// other calls of the same executable.
#ifndef GANGWAY_FRONTDOOR_PJRT_PORTABLE_H_
#define GANGWAY_FRONTDOOR_PJRT_PORTABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/pjrt/drops.h"
#include "gangway/frontdoor/pjrt/stored_program.h"
#include "gangway/xla/compile_options.pb.h"

namespace gangway::pjrt {

struct Source {
  std::shared_ptr<const StoredProgram> stored;
  xla::CompileOptionsProto options;  // as the cluster takes them
};

// A program that the cluster has compiled, and drops unless the caller takes it.
class Compiled {
 public:
  Compiled(Client* client, ExecutableHandle handle) : client_(client), handle_(handle) {}
  ~Compiled();
  Compiled(Compiled&& other) noexcept
      : info(std::move(other.info)), client_(other.client_), handle_(other.Take()) {}
  Compiled& operator=(Compiled&&) = delete;
  ExecutableHandle Take() { return std::exchange(handle_, {}); }

  std::shared_ptr<const ExecutableInfo> info;

 private:
  Client* const client_;
  ExecutableHandle handle_;
};

absl::StatusOr<Compiled> CompileFor(Client* client, const Source& source,
                                    const std::vector<uint32_t>& devices);

// INVALID_ARGUMENT: the options ask for a portable executable, and for devices or for more than one.
absl::Status CheckPortable(const xla::CompileOptionsProto& options);

// The executables of one portable program, by device.
class Portable {
 public:
  // Only Drop and the end may come after `client`.
  Portable(Client* client, std::shared_ptr<Drops> drops, Source source);
  ~Portable() { Drop(); }
  Portable(const Portable&) = delete;
  Portable& operator=(const Portable&) = delete;

  // Adds the executable for a device.
  void Add(uint32_t device, ExecutableHandle executable);

  // The executable for a device, which is compiled if it is missing.
  absl::StatusOr<ExecutableHandle> For(uint32_t device);

  // Drops all executables.
  void Drop();

 private:
  Client* const client_;
  const std::shared_ptr<Drops> drops_;
  const Source source_;
  Mutex mutex_;
  std::map<uint32_t, ExecutableHandle> executables_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_PORTABLE_H_
