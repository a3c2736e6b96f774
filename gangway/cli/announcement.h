// The lines that the head writes on its standard output for its supervisor. Pure but for Announce.
#ifndef GANGWAY_CLI_ANNOUNCEMENT_H_
#define GANGWAY_CLI_ANNOUNCEMENT_H_

#include <optional>
#include <string>

namespace gangway::cli {

struct Announcement {
  enum class Kind {
    kListening,  // text: the control address; workers and the compiler may come
    kEvent,      // text: for people
    kWaiting,    // text: who is still absent
    kReady,      // everybody declared is there
    kSilent,     // text: the pid of a worker that is declared dead, though its process is there
  };
  Kind kind;
  std::string text;
};

std::string ToLine(const Announcement& announcement);           // without a newline
std::optional<Announcement> FromLine(const std::string& line);  // nothing: not an announcement

// Writes it to standard output, whole, at once. Thread-safe.
void Announce(const Announcement& announcement);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ANNOUNCEMENT_H_
