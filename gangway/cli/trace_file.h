// Converts the flight recorders of a cluster to one file for Perfetto (Chrome's JSON trace format).
// Pure. docs/reference/trace.md describes the file.
#ifndef GANGWAY_CLI_TRACE_FILE_H_
#define GANGWAY_CLI_TRACE_FILE_H_

#include <string>
#include <vector>

#include "gangway/wire/trace_collection.h"

namespace gangway::cli {

using wire::ClockOffset;
using wire::TraceCollection;

std::string ToPerfetto(const std::vector<TraceCollection::Process>& processes);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_TRACE_FILE_H_
