// Implementation of utf8.h.
#include "gangway/base/utf8.h"

namespace gangway {

size_t Utf8SequenceSize(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
  if (first == 0xed && byte(1) > 0x9f) return 0;  // a surrogate
  if (first == 0xf0 && byte(1) < 0x90) return 0;  // overlong
  if (first == 0xf4 && byte(1) > 0x8f) return 0;  // above U+10FFFF
  return size;
}

char32_t Utf8CodePoint(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first;
  char32_t point = first & (0x7fu >> sequence.size());
  for (const char each : sequence.substr(1))
    point = point << 6 | (static_cast<unsigned char>(each) & 0x3fu);
  return point;
}

std::string ValidUtf8(std::string_view text) {
  std::string valid(text);
  for (size_t i = 0; i < valid.size();) {
    const size_t size = Utf8SequenceSize(std::string_view(valid).substr(i));
    if (size == 0) valid[i] = '?';
    i += size == 0 ? 1 : size;
  }
  return valid;
}

}  // namespace gangway
