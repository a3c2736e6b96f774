// Formats the reply of `gangway why` as text and as JSON. Pure.
#ifndef GANGWAY_CLI_WHY_TEXT_H_
#define GANGWAY_CLI_WHY_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// "" or "cluster", "session N", "gang N", "array N". INVALID_ARGUMENT: anything else.
absl::StatusOr<wire::WhyRequest> ParseScope(const std::vector<std::string>& words);

// Sorts the longest waits first, except for the chain of a gang or an array.
void Arrange(wire::WhyReply& reply, const wire::WhyRequest& scope);

std::string WaitText(const wire::Wait& wait);  // one line, without a newline
// Of waits that differ in their numbers only, the first three and how many more, except in the chain of a gang or an
// array.
std::string WhyText(const wire::WhyReply& reply, const wire::WhyRequest& scope);
std::string WhyJson(const wire::WhyReply& reply);  // one line

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_WHY_TEXT_H_
