// Implementation of text_scanner.h.
#include "gangway/compiler/check_calls/text_scanner.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace gangway::compiler::calls {
namespace {

int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(digit));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsAlpha(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }

}  // namespace

void TextScanner::SkipSpaces() {
  while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' ||
                                      text_[position_] == '\t' || text_[position_] == '\r'))
    ++position_;
}

bool TextScanner::AtEnd() {
  SkipSpaces();
  return position_ == text_.size();
}

bool TextScanner::NextIs(std::string_view token) {
  SkipSpaces();
  return text_.substr(position_).starts_with(token);
}

bool TextScanner::Take(std::string_view token) {
  if (!NextIs(token)) return false;
  position_ += token.size();
  return true;
}

std::optional<std::string> TextScanner::String() {
  if (!NextIs("\"")) return std::nullopt;
  std::string value;
  for (size_t i = position_ + 1; i < text_.size(); ++i) {
    if (text_[i] == '"') {
      position_ = i + 1;
      return value;
    }
    if (text_[i] != '\\') {
      value.push_back(text_[i]);
      continue;
    }
    if (++i == text_.size()) return std::nullopt;
    if (text_[i] == '\\' || text_[i] == '"') {
      value.push_back(text_[i]);
    } else if (i + 1 < text_.size() && HexValue(text_[i]) >= 0 && HexValue(text_[i + 1]) >= 0) {
      value.push_back(static_cast<char>(16 * HexValue(text_[i]) + HexValue(text_[i + 1])));
      ++i;
    } else if (text_[i] == 'n' || text_[i] == 't') {
      value.push_back(text_[i] == 'n' ? '\n' : '\t');
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::string_view TextScanner::Word() {
  SkipSpaces();
  size_t end = position_;
  while (end < text_.size() &&
         (IsAlpha(text_[end]) || text_[end] == '_' ||
          (end > position_ && (IsDigit(text_[end]) || text_[end] == '$' || text_[end] == '.'))))
    ++end;
  const std::string_view word = text_.substr(position_, end - position_);
  position_ = end;
  return word;
}

std::string_view TextScanner::Number() {
  SkipSpaces();
  size_t end = position_;
  if (end < text_.size() && text_[end] == '-') ++end;
  if (end == text_.size() || !IsDigit(text_[end])) return {};
  while (end < text_.size()) {
    const char c = text_[end];
    const bool is_exponent_sign =
        (c == '-' || c == '+') && (text_[end - 1] == 'e' || text_[end - 1] == 'E');
    if (!IsAlnum(c) && c != '.' && !is_exponent_sign) break;
    ++end;
  }
  const std::string_view number = text_.substr(position_, end - position_);
  position_ = end;
  return number;
}

std::optional<int64_t> TextScanner::Integer() {
  const std::string_view number = Number();
  int64_t value = 0;
  if (number.empty() || !absl::SimpleAtoi(absl::string_view(number.data(), number.size()), &value))
    return std::nullopt;
  return value;
}

}  // namespace gangway::compiler::calls
