// The head: controller, the islands' schedulers (but for those that are processes of their own) and
// the JAX front door in one process, over the in-process transport. Workers, the compiler and tools
// connect to the control address.
//
// Threading: one event loop runs controller and schedulers; the front door has threads of its own.
// Start and the destructor are called from one thread; neither is a thread of the head.
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
  std::vector<std::vector<uint32_t>> islands;         // of each worker, how many devices
  std::map<uint32_t, std::string> remote_schedulers;  // by island: a process of its own, and where
  uint64_t budget_bytes = 0;                          // per device; 0 = no limit
  Access access;                                     // what workers, tools and clients must present
  std::string control_address;                       // "unix:/path", or "host:port"
  std::string front_door_address;                    // "127.0.0.1:port"; port 0 = any free one
  std::chrono::milliseconds welcome_max{15000};      // a new session, for the declared workers
  std::chrono::milliseconds worker_wait_max{20000};  // work, for a worker that is down
  std::chrono::milliseconds memory_wait_max{30000};
  int metrics_port = 0;                                // 0 = none; served by the role, not by Head
  std::function<void(uint64_t process_id)> on_silent;  // who was declared dead by silence
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

  // Takes no new work, and waits until none is left, at most for `limit`. Before the destructor.
  virtual void Drain(std::chrono::milliseconds limit) = 0;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HEAD_H_
