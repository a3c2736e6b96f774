// Names in programs, and what messages say of them and of lists of devices, which may be long. Pure.
#ifndef GANGWAY_PROGRAM_NAMES_H_
#define GANGWAY_PROGRAM_NAMES_H_

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/program/program.h"

namespace gangway::program {

// Not empty, of letters, digits and _ . : - / only.
inline bool IsName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':' || c == '-' || c == '/';
  });
}

// "0,1", or the first of many and how many they are.
inline std::string ShortText(const Devices& devices) {
  constexpr size_t kShown = 32;
  const std::string text =
      absl::StrJoin(std::span(devices).first(std::min(devices.size(), kShown)), ",");
  return devices.size() <= kShown ? text : absl::StrCat(text, ",... (", devices.size(), ")");
}

// The text, or the beginning of a long one.
inline std::string ShortText(std::string_view text) {
  constexpr size_t kShown = 256;
  std::string shown(text.substr(0, kShown));
  return text.size() <= kShown ? shown : shown + "...";
}

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_NAMES_H_
