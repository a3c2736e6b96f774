// Implementation of log.h.
#include "gangway/base/log.h"

#include <atomic>
#include <cstdio>

#include "gangway/base/shown_name.h"

namespace gangway {
namespace {

void ToStderr(LogLevel level, const std::string& line) {
  const char* word = level == LogLevel::kInfo    ? ""
                     : level == LogLevel::kError ? "error: "
                                                 : "warning: ";
  std::fprintf(stderr, "gangway: %s%s\n", word, ShownLines(line).c_str());
}

std::atomic<LogSink> log_sink = &ToStderr;

}  // namespace

void Log(LogLevel level, const std::string& line) { log_sink.load()(level, line); }

void SetLogSink(LogSink sink) { log_sink = sink; }

}  // namespace gangway
