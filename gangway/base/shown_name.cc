// Implementation of shown_name.h.
#include "gangway/base/shown_name.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "gangway/base/utf8.h"

namespace gangway {
namespace {

constexpr std::string_view kCut = "...";
constexpr std::string_view kNextLine = "\n    ";

struct Range {
  char32_t first, last;
};
// Unicode: controls (Cc), line separators, format characters (Cf) that change direction or are invisible. The joiners
// U+200C and U+200D stay, since words and emoji need them.
constexpr Range kEscaped[] = {{0x00, 0x1f},     {0x7f, 0x9f},      {0x061c, 0x061c},
                              {0x180e, 0x180e}, {0x200b, 0x200b},  {0x200e, 0x200f},
                              {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                              {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};

bool IsEscaped(char32_t point) {
  return std::any_of(std::begin(kEscaped), std::end(kEscaped), [point](const Range& range) {
    return range.first <= point && point <= range.last;
  });
}

std::string Escape(const char* format, char32_t point) {
  char text[16];
  std::snprintf(text, sizeof(text), format, static_cast<unsigned>(point));
  return text;
}

std::string Shown(std::string_view sequence) {
  const char32_t point = Utf8CodePoint(sequence);
  if (!IsEscaped(point)) return std::string(sequence);
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  return Escape(point < 0x80 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x", point);
}

// Shows the first character of `text` and removes it; it is not empty.
std::string ShowFirst(std::string_view& text) {
  const size_t size = Utf8SequenceSize(text);
  std::string shown = size == 0 ? Escape("\\x%02x", static_cast<unsigned char>(text[0]))
                                : Shown(text.substr(0, size));
  text.remove_prefix(std::max<size_t>(1, size));
  return shown;
}

}  // namespace

std::string ShownName(std::string_view text, size_t bytes_max) {
  std::string shown;
  size_t cut = 0;  // where the name would end if it had to be cut
  while (!text.empty()) {
    shown += ShowFirst(text);
    if (shown.size() + kCut.size() <= bytes_max) cut = shown.size();
    if (shown.size() > bytes_max) return shown.substr(0, cut).append(kCut);
  }
  return shown;
}

std::string ShownLines(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    if (text[0] == '\n' || text[0] == '\t') {
      shown += text[0] == '\n' ? kNextLine : "\t";
      text.remove_prefix(1);
    } else {
      shown += ShowFirst(text);
    }
  }
  return shown;
}

}  // namespace gangway
