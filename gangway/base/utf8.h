// UTF-8 as RFC 3629 defines it. Pure.
#ifndef GANGWAY_BASE_UTF8_H_
#define GANGWAY_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway {

// The size in bytes, 1 to 4, of the valid sequence at the start of `text`; 0 if none is there.
size_t Utf8SequenceSize(std::string_view text);

// The code point of a valid sequence.
char32_t Utf8CodePoint(std::string_view sequence);

// `text` with every byte that is not part of valid UTF-8 replaced by '?'.
std::string ValidUtf8(std::string_view text);

}  // namespace gangway

#endif  // GANGWAY_BASE_UTF8_H_
