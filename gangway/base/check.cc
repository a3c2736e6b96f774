// Implementation of check.h.
#include "gangway/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gangway {

void CheckFailed(const char* file, int line, const char* condition, std::string_view what) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %.*s\n", file, line, condition,
               static_cast<int>(what.size()), what.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace gangway
