// The folder of the cluster on one port: ${GANGWAY_STATE_DIR:-$HOME/.gangway}/<port>/, for its
// owner only (base/private_file.h). It holds the pids, the control address, the token (access.h),
// the logs, and a lock.
// The supervisor holds the lock until it ends, so the files of a crashed cluster never look like a
// running one.
#ifndef GANGWAY_CLI_STATE_DIR_H_
#define GANGWAY_CLI_STATE_DIR_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/private_file.h"

namespace gangway::cli {

inline constexpr int kDefaultPort = 38600;
inline constexpr char kSupervisorPid[] = "up.pid";
inline constexpr char kFrontDoorSocket[] =
    "front_door.sock";  // JAX clients of this host look for it
inline constexpr char kControlAddress[] = "control";
inline constexpr char kDeviceCount[] = "devices";  // declared ones; JAX clients choose a door by it
inline constexpr char kTlsFolder[] = "tls";  // path of the cluster's TLS folder; no file without

// `flag` if given, else GANGWAY_STATE_DIR, else ~/.gangway.
std::string StateRoot(const std::string& flag);

// Of compiled programs, for all clusters of a state folder: GANGWAY_CACHE_DIR, else `cache` in that folder.
std::string CacheFolder(const std::string& root);

// `flag` unless negative, else GANGWAY_PORT, else 38600. INVALID_ARGUMENT: not a port.
absl::StatusOr<int> ChoosePort(int flag);

class StateDir {
 public:
  StateDir(const std::string& root, int port);
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  const std::string& root() const { return root_; }
  const std::string& path() const { return path_; }
  int port() const { return port_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Creates the folder and takes the lock. ALREADY_EXISTS: a cluster runs; names its pid.
  // PERMISSION_DENIED: other users own the folder, or could replace it.
  absl::Status Lock();
  // The pid of the supervisor that holds the lock. NOT_FOUND: no cluster runs here; says how to
  // start one. PERMISSION_DENIED: as above; nothing in such a folder is believed.
  absl::StatusOr<pid_t> Supervisor() const;

  absl::Status Write(const std::string& name,
                     const std::string& text) const;  // atomic
  absl::StatusOr<std::string> Read(
      const std::string& name) const;  // without the newline at its end
  void Remove(const std::string& name) const;
  absl::StatusOr<PrivateFolder> Logs() const;  // made unless it exists

 private:
  absl::StatusOr<PrivateFolder> Open() const;

  const std::string root_;
  const std::string path_;
  const int port_;
  FileDescriptor lock_;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_STATE_DIR_H_
