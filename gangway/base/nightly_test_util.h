// Whether a test runs in full, as in `make nightly`, or only what the change of one line may break.
//
// Threading: a function without state. Failure: none.
#ifndef GANGWAY_BASE_NIGHTLY_TEST_UTIL_H_
#define GANGWAY_BASE_NIGHTLY_TEST_UTIL_H_

#include <cstdlib>

namespace gangway {

inline bool IsNightly() { return std::getenv("GANGWAY_NIGHTLY") != nullptr; }

// In the build for ThreadSanitizer, which other builds do not need to repeat, and which takes ten times as long.
#if defined(__has_feature)
inline constexpr bool kIsThreadSanitized = __has_feature(thread_sanitizer);
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

}  // namespace gangway

#endif  // GANGWAY_BASE_NIGHTLY_TEST_UTIL_H_
