// Asks a running cluster, as the tools do: over the control link, with one deadline.
#ifndef GANGWAY_CLI_TOOL_LINK_H_
#define GANGWAY_CLI_TOOL_LINK_H_

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// Asks and calls `on_answer` for each frame that comes (the HelloReply too), on another thread,
// until it returns true. Blocks; nothing is called after it returned. Errors as AskStatus.
absl::Status AskTool(transport::Transport& transport, const std::string& control_address,
                     const std::string& token, const std::string& name, wire::Frame request,
                     std::chrono::milliseconds limit, std::function<bool(wire::Frame)> on_answer);

// Blocks. UNAVAILABLE: nobody answers, or it hung up. DEADLINE_EXCEEDED: it did not answer within
// `limit`.
absl::StatusOr<wire::StatusReply> AskStatus(transport::Transport& transport,
                                            const std::string& control_address,
                                            const std::string& token,
                                            std::chrono::milliseconds limit);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TOOL_LINK_H_
