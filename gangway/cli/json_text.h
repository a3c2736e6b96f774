// JSON strings.
#ifndef GANGWAY_CLI_JSON_TEXT_H_
#define GANGWAY_CLI_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace gangway::cli {

// `text` as a JSON string, with its quotes.
inline std::string Quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (unsigned char c : text) {
    if (c < 0x20) {
      quoted += "\\u00";
      quoted += kHex[c >> 4];
      quoted += kHex[c & 15];
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<char>(c);
  }
  return quoted + "\"";
}

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_JSON_TEXT_H_
