// GANGWAY_CHECK: ends the process when an invariant of our own code is broken, in production too.
// Never used for anything that a client, a file or the network can cause: that is an absl::Status.
#ifndef GANGWAY_BASE_CHECK_H_
#define GANGWAY_BASE_CHECK_H_

#include <string_view>

namespace gangway {

// Prints where and what to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view what);

}  // namespace gangway

// `what` is a string that says which invariant broke; it is evaluated only on failure.
#define GANGWAY_CHECK(condition, what)                              \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::gangway::CheckFailed(__FILE__, __LINE__, #condition, what); \
  } while (false)

#endif  // GANGWAY_BASE_CHECK_H_
