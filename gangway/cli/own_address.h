// The address under which other hosts reach this one, where no option names it.
//
// Threading: functions without state; names are resolved, so a call may block as long as the resolver does. Failure:
// UNAVAILABLE, which says which option names the address instead.
#ifndef GANGWAY_CLI_OWN_ADDRESS_H_
#define GANGWAY_CLI_OWN_ADDRESS_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace gangway::cli {

// The address from which this host sends to `peer`, such as "head.example:38601" or "[fd00::1]:38601": other hosts of
// the peer's network reach this host there. Loopback if the peer is on this host and named so. Sends nothing.
absl::StatusOr<std::string> OwnAddressTowards(const std::string& peer);

// An address of this host that is not loopback: the one that its own name stands for, else the first of its network
// interfaces.
absl::StatusOr<std::string> OwnAddress();

// Whether a process accepts connections at "host:port". Waits for it at most `limit`.
bool Answers(const std::string& address, std::chrono::milliseconds limit);

// Whether `host` names this machine alone: 127.0.0.0/8, ::1 or localhost.
bool IsLoopbackHost(const std::string& host);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_OWN_ADDRESS_H_
