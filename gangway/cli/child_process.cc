// Implementation of child_process.h.
#include "gangway/cli/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"

namespace gangway::cli {
namespace {

constexpr int kPipeBytes = 1 << 20;

absl::Status SystemError(const std::string& what) {
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", std::strerror(errno)));
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeCommand(char* const* arguments, int input, int output, int error,
                                pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the supervisor died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // the logs, and files that our own parent left open
  execv(arguments[0], arguments);
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BoundedLog>> BoundedLog::Open(
    std::shared_ptr<const PrivateFolder> folder, std::string name) {
  std::unique_ptr<BoundedLog> log(new BoundedLog(std::move(folder), std::move(name)));
  GANGWAY_RETURN_IF_ERROR(log->OpenFile(O_APPEND));
  const off_t size = lseek(log->file_.get(), 0, SEEK_END);
  if (size > 0) log->bytes_ = static_cast<size_t>(size);
  return log;
}

absl::Status BoundedLog::OpenFile(int flags) {
  GANGWAY_ASSIGN_OR_RETURN(file_, folder_->OpenFile(name_, O_WRONLY | O_CREAT | flags));
  return absl::OkStatus();
}

void BoundedLog::Write(const std::string& text) {
  if (bytes_ + text.size() > kBytesMax) {
    file_.Reset();
    folder_->Rename(name_, name_ + ".1").IgnoreError();
    bytes_ = 0;
    OpenFile(O_TRUNC).IgnoreError();
  }
  if (!file_.valid()) OpenFile(O_APPEND).IgnoreError();  // no room then
  // What a full disk does not take is lost; later lines may find room again.
  if (file_.valid()) (void)WriteAll(file_.get(), text);
  bytes_ += text.size();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& command, BoundedLog* log,
    std::function<void(const std::string&)> on_line) {
  int output[2], error[2];
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("make a pipe");
  FileDescriptor output_read(output[0]), output_write(output[1]);
  if (pipe2(error, O_CLOEXEC) != 0) return SystemError("make a pipe");
  FileDescriptor error_read(error[0]), error_write(error[1]);
  // A supervisor that is stopped reads nothing. Its children then lose lines, but never wait for it.
  for (int fd : {output[1], error[1]}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETPIPE_SZ, kPipeBytes);  // as far as the system allows
  }
  FileDescriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return SystemError("start a process");
  if (pid == 0)
    BecomeCommand(arguments.data(), input.get(), output_write.get(), error_write.get(), parent);
  setpgid(pid, pid);  // both processes set it, so that it holds whichever runs first
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->pid_ = pid;
  child->pid_fd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (child->pid_fd_.get() < 0) return SystemError("watch a process");  // the destructor ends it
  fcntl(child->pid_fd_.get(), F_SETFD, FD_CLOEXEC);
  for (int fd : {output_read.get(), error_read.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  child->output_.fd = std::move(output_read);
  child->error_.fd = std::move(error_read);
  child->log_ = log;
  child->on_line_ = std::move(on_line);
  child->started_ = Clock::now();
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0 || ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) {
  if (!ended_) kill(pid_, signal);
}

void ChildProcess::Read(Pipe& pipe) {
  char buffer[16384];
  while (pipe.fd.get() >= 0) {
    const ssize_t count = read(pipe.fd.get(), buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      if (!pipe.partial.empty()) OnLine(pipe, std::exchange(pipe.partial, {}));
      pipe.fd.Reset();
      return;
    }
    pipe.partial.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = pipe.partial.find('\n', begin)) != std::string::npos; begin = end + 1) {
      OnLine(pipe, pipe.partial.substr(begin, end - begin));
    }
    pipe.partial.erase(0, begin);
    if (pipe.partial.size() > kLineBytesMax) {
      OnLine(pipe, pipe.partial);
      pipe.partial.clear();
    }
  }
}

void ChildProcess::OnLine(Pipe& pipe, const std::string& line) {
  if (&pipe == &output_) {
    if (on_line_) on_line_(line);
    return;
  }
  // Not only our own lines: a compiler's runtime writes names of programs there.
  const std::string shown = ShownLines(line);
  if (log_ != nullptr) log_->Write(shown + "\n");
  last_words_.push_back(shown);
  if (last_words_.size() > kLastWords) last_words_.pop_front();
}

std::string ChildProcess::Reap() {
  int status = 0;
  waitpid(pid_, &status, 0);
  ended_ = true;
  // A grandchild may hold the pipes open, so this reads only the output that has arrived.
  ReadOutput();
  ReadError();
  if (!error_.partial.empty()) OnLine(error_, std::exchange(error_.partial, {}));
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                        ")");
  }
  exit_status_ = WEXITSTATUS(status);
  return absl::StrCat("ended with status ", exit_status_);
}

std::string ChildProcess::LastWords() const {
  if (last_words_.empty()) return "    (it logged nothing)";
  std::string text;
  for (const std::string& line : last_words_)
    absl::StrAppend(&text, text.empty() ? "" : "\n", "    ", line);
  return text;
}

}  // namespace gangway::cli
