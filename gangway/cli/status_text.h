// A cluster's status as a table for people and as JSON for programs. Pure.
#ifndef GANGWAY_CLI_STATUS_TEXT_H_
#define GANGWAY_CLI_STATUS_TEXT_H_

#include <string>

#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

std::string ToTable(const wire::StatusReply& status);
std::string ToJson(const wire::StatusReply& status);  // one line

// Whether the worker reports that a call of the device runtime does not return.
bool IsStuck(const wire::WorkerState& worker, uint32_t device);

// Names of the declared processes that are absent, "island0/worker1, the compiler"; empty if none.
std::string Absent(const wire::StatusReply& status);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_STATUS_TEXT_H_
