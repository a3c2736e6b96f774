// The head: control plane and JAX front door in one process. control_plane.h lists the addresses and their roles.
//
// Threading: Start and the destructor are called from one thread, which is not a thread of the head.
#ifndef GANGWAY_CLI_HEAD_H_
#define GANGWAY_CLI_HEAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/cli/access.h"
#include "gangway/cli/control_plane.h"

namespace gangway::cli {

struct HeadOptions : ControlPlaneOptions {  // the control address: "unix:/path", or "host:port"
  Access access;                            // its token is a tool's
  std::optional<uint64_t> memory_bytes;     // that the head holds for clients; not set: PlanHead
  std::string front_door_address;           // "127.0.0.1:port"; port 0 = any free one
  std::string front_door_socket;            // a path, where it listens too; empty: none
  std::chrono::milliseconds client_silence_max{60000};
  int metrics_port = 0;  // 0 = none; served by the role, not by Head
};

class Head {
 public:
  virtual ~Head() = default;  // ends sessions, closes links, joins threads

  // Errors: of ControlPlane::Start, and of the front door's addresses.
  static absl::StatusOr<std::unique_ptr<Head>> Start(const HeadOptions& options);

  virtual const std::string& front_door_address() const = 0;  // with the real port
  virtual const std::string& control_address() const = 0;     // likewise, where it listens

  // Rejects new work and waits up to `limit` until none is left. Call it before the destructor.
  virtual void Drain(std::chrono::milliseconds limit) = 0;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HEAD_H_
