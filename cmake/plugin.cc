// What every plugin holds beside its library (gangway_plugin in GangwayTargets.cmake).
#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

// The static C++ runtime names it for std::random_device, and glibc has it since 2.36. Without it here, no plugin would
// load into programs on older systems, though none calls it.
extern "C" uint32_t arc4random() noexcept {
  uint32_t bits;
  if (getentropy(&bits, sizeof(bits)) != 0) std::abort();
  return bits;
}
