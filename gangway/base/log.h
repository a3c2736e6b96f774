// Log: a line for the operator, from code that also runs inside other programs' processes, where Gangway has no logger.
// The roles' processes send it to theirs; elsewhere it goes to stderr. Both
// escape control characters and indent further lines (base/shown_name.h).
//
// Threading: Log is thread-safe; SetLogSink is called before other threads log. Failure: none.
#ifndef GANGWAY_BASE_LOG_H_
#define GANGWAY_BASE_LOG_H_

#include <string>

namespace gangway {

enum class LogLevel { kInfo, kWarning, kError };
using LogSink = void (*)(LogLevel level, const std::string& line);

void Log(LogLevel level, const std::string& line);
void SetLogSink(LogSink sink);

}  // namespace gangway

#endif  // GANGWAY_BASE_LOG_H_
