// Asks a running cluster for its status, as the tools do: over the control link, with one deadline.
#ifndef GANGWAY_CLI_TOOL_LINK_H_
#define GANGWAY_CLI_TOOL_LINK_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// Blocks. UNAVAILABLE: nobody answers, or it hung up. DEADLINE_EXCEEDED: it did not answer within
// `limit`.
absl::StatusOr<wire::StatusReply> AskStatus(transport::Transport& transport,
                                            const std::string& control_address,
                                            std::chrono::milliseconds limit);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TOOL_LINK_H_
