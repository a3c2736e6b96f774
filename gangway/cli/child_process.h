// A child process of the supervisor. It runs in its own process group (Ctrl-C reaches only the
// supervisor), and the kernel kills it if the supervisor dies. Its standard output is read line by
// line as announcements (announcement.h). Its standard error goes to a bounded log; the last lines
// are kept for the report of its death.
//
// Threading: only the thread that starts it (the kernel ties the child's life to that thread).
#ifndef GANGWAY_CLI_CHILD_PROCESS_H_
#define GANGWAY_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/private_file.h"

namespace gangway::cli {

// A log of at most about twice kBytesMax bytes in two files: <name>, and the older <name>.1.
class BoundedLog {
 public:
  static constexpr size_t kBytesMax = size_t{4} << 20;
  // Appends to the file if it exists. Errors: those of PrivateFolder::OpenFile.
  static absl::StatusOr<std::unique_ptr<BoundedLog>> Open(
      std::shared_ptr<const PrivateFolder> folder, std::string name);
  void Write(const std::string& text);

 private:
  BoundedLog(std::shared_ptr<const PrivateFolder> folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  absl::Status OpenFile(int flags);

  const std::shared_ptr<const PrivateFolder> folder_;
  const std::string name_;
  FileDescriptor file_;
  size_t bytes_ = 0;
};

class ChildProcess {
 public:
  static constexpr size_t kLastWords = 12;        // lines
  static constexpr size_t kLineBytesMax = 16384;  // a longer line is split

  // INTERNAL: the system could not start it.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& command, BoundedLog* log,
      std::function<void(const std::string& line)> on_line);
  ~ChildProcess();  // kills and reaps it if it still runs

  pid_t pid() const { return pid_; }
  int pid_fd() const { return pid_fd_.get(); }        // readable: it ended
  int output_fd() const { return output_.fd.get(); }  // -1 once closed
  int error_fd() const { return error_.fd.get(); }
  Clock::time_point started() const { return started_; }

  void ReadOutput() { Read(output_); }
  void ReadError() { Read(error_); }
  void Signal(int signal);

  // Call after pid_fd is readable. Reads the rest of the output and returns how the process ended,
  // for example "ended with status 1".
  std::string Reap();
  bool ended() const { return ended_; }
  int exit_status() const { return exit_status_; }  // valid after Reap; -1: a signal ended it
  std::string LastWords() const;                    // lines, indented

 private:
  struct Pipe {
    FileDescriptor fd;
    std::string partial;
  };

  ChildProcess() = default;
  void Read(Pipe& pipe);
  void OnLine(Pipe& pipe, const std::string& line);

  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_status_ = -1;
  FileDescriptor pid_fd_;
  Pipe output_, error_;
  BoundedLog* log_ = nullptr;  // not owned
  std::function<void(const std::string&)> on_line_;
  std::deque<std::string> last_words_;
  Clock::time_point started_;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CHILD_PROCESS_H_
