// Implementation of announcement.h.
#include "gangway/cli/announcement.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "gangway/base/shown_name.h"

namespace gangway::cli {
namespace {

using Kind = Announcement::Kind;
constexpr std::array<std::pair<Kind, const char*>, 6> kWords = {{{Kind::kListening, "listening"},
                                                                 {Kind::kEvent, "event"},
                                                                 {Kind::kWaiting, "waiting"},
                                                                 {Kind::kReady, "ready"},
                                                                 {Kind::kSilent, "silent"},
                                                                 {Kind::kWanted, "wanted"}}};

}  // namespace

std::string ToLine(const Announcement& announcement) {
  std::string line;
  for (const auto& [kind, word] : kWords) {
    if (kind == announcement.kind) line = word;
  }
  if (!announcement.text.empty()) line += " " + announcement.text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return announcement.kind == Kind::kEvent ? ShownName(line, SIZE_MAX) : line;
}

std::optional<Announcement> FromLine(const std::string& line) {
  const size_t word_end = std::min(line.find(' '), line.size());
  for (const auto& [kind, word] : kWords) {
    if (line.substr(0, word_end) != word) continue;
    return Announcement{.kind = kind,
                        .text = word_end < line.size() ? line.substr(word_end + 1) : ""};
  }
  return std::nullopt;
}

void Announce(const Announcement& announcement) {
  const std::string line = ToLine(announcement) + "\n";
  // One write, so that lines of several threads do not mix. A failed write is ignored: if the
  // supervisor is gone, the kernel ends this process too.
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace gangway::cli
