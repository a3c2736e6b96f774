// The head: controller, the islands' schedulers (except those that are separate processes) and the
// JAX front door in one process, over the in-process transport. Workers, the compiler and tools
// connect to the control address.
//
// Threading: one event loop runs controller and schedulers; the front door has its own threads.
// Start and the destructor are called from one thread, which is not a thread of the head.
#ifndef GANGWAY_CLI_HEAD_H_
#define GANGWAY_CLI_HEAD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/cli/access.h"

namespace gangway::cli {

struct HeadOptions {
  std::vector<std::vector<uint32_t>> islands;         // device count of each worker
  std::map<uint32_t, std::string> remote_schedulers;  // island -> address of a separate scheduler
  uint64_t budget_bytes = 0;                          // per device; 0 = no limit
  Access access;                                      // required from workers, tools and clients
  std::string control_address;                        // "unix:/path", or "host:port"
  std::string front_door_address;                     // "127.0.0.1:port"; port 0 = any free one
  std::string front_door_socket;                      // a path, where it listens too; empty: none
  std::chrono::milliseconds client_silence_max{60000};
  std::chrono::milliseconds welcome_max{15000};      // a new session, for the declared workers
  std::chrono::milliseconds worker_wait_max{20000};  // work, for a worker that is down
  std::chrono::milliseconds memory_wait_max{30000};
  int metrics_port = 0;                                // 0 = none; served by the role, not by Head
  std::function<void(uint64_t process_id)> on_silent;  // a process declared dead for its silence
  std::function<void(const std::string&)>
      on_event;  // for people, one line each; called on the head's loop
};

class Head {
 public:
  virtual ~Head() = default;  // ends sessions, closes links, joins threads

  // INVALID_ARGUMENT: a malformed address, one beyond loopback without TLS (SE-1), or no devices.
  // UNAVAILABLE: an address is in use.
  static absl::StatusOr<std::unique_ptr<Head>> Start(const HeadOptions& options);

  virtual const std::string& front_door_address() const = 0;  // with the real port

  // Rejects new work and waits up to `limit` until none is left. Call it before the destructor.
  virtual void Drain(std::chrono::milliseconds limit) = 0;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HEAD_H_
