// Queries a running cluster as the tools do: over the control link, with one deadline.
#ifndef GANGWAY_CLI_TOOL_LINK_H_
#define GANGWAY_CLI_TOOL_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// Sends `request` and calls `on_answer` for each received frame (including the HelloReply), on
// another thread, until it returns true. Blocks; no callback runs after AskTool returns. Errors as
// AskStatus.
absl::Status AskTool(transport::Transport& transport, const std::string& control_address,
                     const std::string& token, const std::string& name, wire::Frame request,
                     std::chrono::milliseconds limit, std::function<bool(wire::Frame)> on_answer);

// Asks whether the process at `address` would welcome `token`, in whatever role. Blocks. Errors as
// AskStatus.
absl::Status Probe(transport::Transport& transport, const std::string& address,
                   const std::string& token, const std::string& name,
                   std::chrono::milliseconds limit);

// Asks the controller what it declares of a worker, with a worker's token: the one of `index` in `island` or, if that
// is not set, in all islands. Blocks. Errors as AskStatus; INVALID_ARGUMENT: no such worker is declared.
absl::StatusOr<wire::WorkerDeclaration> AskDeclaration(
    transport::Transport& transport, const std::string& control_address, const std::string& token,
    std::optional<uint32_t> island, uint32_t index, std::chrono::milliseconds limit);

// With `ready_limit`, the controller answers when all declared processes are up, at the latest after that time.
// Blocks. UNAVAILABLE: no controller listens, or it closed the link. DEADLINE_EXCEEDED: it did not
// answer within `limit`. Otherwise the controller's rejection, for example of the token.
absl::StatusOr<wire::StatusReply> AskStatus(transport::Transport& transport,
                                            const std::string& control_address,
                                            const std::string& token,
                                            std::chrono::milliseconds limit,
                                            std::chrono::milliseconds ready_limit = {});

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TOOL_LINK_H_
