// The lines that the head and schedulers write to standard output for their supervisor. Pure except
// Announce.
#ifndef GANGWAY_CLI_ANNOUNCEMENT_H_
#define GANGWAY_CLI_ANNOUNCEMENT_H_

#include <optional>
#include <string>

namespace gangway::cli {

struct Announcement {
  enum class Kind {
    kListening,  // text: the control address; workers and the compiler can connect
    kEvent,      // text: for people
    kWaiting,    // text: names of the absent processes
    kReady,      // all declared processes are up
    kSilent,     // text: the pid of a worker that was declared dead but still has a process
    kWanted,     // text: the name of a process that runs on demand
  };
  Kind kind;
  std::string text;
};

// Without a newline. The text of an event is escaped (base/shown_name.h), since it repeats names of others.
std::string ToLine(const Announcement& announcement);
std::optional<Announcement> FromLine(const std::string& line);  // nullopt: not an announcement

// Writes the line to standard output in one write. Thread-safe.
void Announce(const Announcement& announcement);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ANNOUNCEMENT_H_
