// Implementation of pieces.h.
#include "gangway/collective/execution/pieces.h"

#include <cstring>

namespace gangway::collective {
namespace {

// From this length on, a call of std::memcpy costs little beside its work.
constexpr size_t kShort = 256;

// Each run has kWord bytes or more. The last word of a run may overlap the one before it.
template <size_t kWord>
void CopyWords(Spaced<std::byte> to, Spaced<const std::byte> from, size_t bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    std::byte* const into = to.at(i);
    const std::byte* const source = from.at(i);
    for (size_t at = 0; at + kWord < bytes; at += kWord) std::memcpy(into + at, source + at, kWord);
    std::memcpy(into + bytes - kWord, source + bytes - kWord, kWord);
  }
}

}  // namespace

void CopySpaced(Spaced<std::byte> to, Spaced<const std::byte> from, size_t bytes, size_t count) {
  if (count == 1 || bytes >= kShort || bytes == 0) {
    for (size_t i = 0; i < count; ++i) std::memcpy(to.at(i), from.at(i), bytes);
  } else if (bytes >= 16) {
    CopyWords<16>(to, from, bytes, count);
  } else if (bytes >= 8) {
    CopyWords<8>(to, from, bytes, count);
  } else if (bytes >= 4) {
    CopyWords<4>(to, from, bytes, count);
  } else if (bytes >= 2) {
    CopyWords<2>(to, from, bytes, count);
  } else {
    CopyWords<1>(to, from, bytes, count);
  }
}

}  // namespace gangway::collective
