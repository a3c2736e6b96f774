// Reads the texts that a program carries in MLIR's syntax, strictly: what is not expected is not skipped. Spaces and
// line ends between tokens are, comments are not. Pure, on untrusted bytes.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_TEXT_SCANNER_H_
#define GANGWAY_COMPILER_CHECK_CALLS_TEXT_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gangway::compiler::calls {

class TextScanner {
 public:
  // `text` outlives the scanner.
  explicit TextScanner(std::string_view text) : text_(text) {}

  bool AtEnd();
  // Whether `token` comes next; it is then consumed.
  bool Take(std::string_view token);
  bool NextIs(std::string_view token);
  // A quoted string without its quotes, with escapes resolved: \\, \", \n, \t, and two hexadecimal digits.
  std::optional<std::string> String();
  // A letter or underscore, then also digits, '$' and '.'. Empty: none comes next.
  std::string_view Word();
  // An optional '-', a digit, then what numbers of any kind consist of. Empty: none comes next.
  std::string_view Number();
  // A number of decimal digits alone that fits.
  std::optional<int64_t> Integer();

 private:
  void SkipSpaces();

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_TEXT_SCANNER_H_
