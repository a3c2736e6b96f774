// Implementation of random.h.
#include "gangway/base/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "gangway/base/check.h"
#include "gangway/base/world.h"

namespace gangway {
namespace {

constexpr size_t kUninterruptedBytes = 256;  // getrandom(2) gives as many at once, or an error

void Fill(char* bytes, size_t size) {
  const ssize_t made = getrandom(bytes, size, 0);
  GANGWAY_CHECK(made == static_cast<ssize_t>(size), "the system gives no random bytes");
}

}  // namespace

uint64_t RandomBits() {
  if (World* world = World::installed(); world != nullptr) return world->RandomBits();
  uint64_t bits;
  Fill(reinterpret_cast<char*>(&bits), sizeof(bits));
  return bits;
}

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const bool simulated = World::installed() != nullptr;
    const size_t part = std::min(size - at, simulated ? sizeof(uint64_t) : kUninterruptedBytes);
    if (simulated) {
      const uint64_t bits = RandomBits();
      std::memcpy(bytes.data() + at, &bits, part);
    } else {
      Fill(bytes.data() + at, part);
    }
    at += part;
  }
  return bytes;
}

}  // namespace gangway
