// Implementation of state_dir.h.
#include "gangway/cli/state_dir.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gangway::cli {
namespace {

absl::Status FileError(const std::string& what, const std::string& path, int error) {
  return absl::InternalError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)));
}

std::string Home() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_dir : "/tmp";
}

}  // namespace

std::string StateRoot(const std::string& flag) {
  if (!flag.empty()) return std::filesystem::absolute(flag);
  const char* variable = std::getenv("GANGWAY_STATE_DIR");
  if (variable != nullptr && *variable != '\0') return std::filesystem::absolute(variable);
  return absl::StrCat(Home(), "/.gangway");
}

absl::StatusOr<int> ChoosePort(int flag) {
  if (flag >= 0) {
    if (flag > 65535)
      return absl::InvalidArgumentError(absl::StrCat("--port ", flag, " is not a port"));
    return flag;
  }
  const char* variable = std::getenv("GANGWAY_PORT");
  if (variable == nullptr || *variable == '\0') return kDefaultPort;
  int port = 0;
  if (!absl::SimpleAtoi(variable, &port) || port <= 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("GANGWAY_PORT=", variable,
                     " is not a port: set it to a number from 1 to 65535, or unset it"));
  }
  return port;
}

StateDir::StateDir(const std::string& root, int port)
    : root_(root), path_(absl::StrCat(root, "/", port)), port_(port) {}

absl::Status StateDir::Lock() {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) return FileError("make", path_, error.value());
  if (chmod(path_.c_str(), 0700) != 0) return FileError("protect", path_, errno);
  lock_.Reset(open(File("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return FileError("open", File("lock"), errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  lock_.Reset();
  return absl::AlreadyExistsError(absl::StrCat(
      "a cluster already runs on port ", port_, " (pid ", Read(kSupervisorPid).value_or("unknown"),
      "): end it with `gangway down --port ", port_, "`, or choose another --port"));
}

absl::StatusOr<pid_t> StateDir::Supervisor() const {
  absl::Status nobody = absl::NotFoundError(
      absl::StrCat("no cluster runs on port ", port_, " (looked in ", path_,
                   "): start one with `gangway up --port ", port_,
                   "`, or give the port of a running one (--port or GANGWAY_PORT)"));
  FileDescriptor file(open(File("lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return nobody;
  const bool free = flock(file.get(), LOCK_SH | LOCK_NB) == 0;
  file.Reset();
  int pid = 0;
  if (free || !absl::SimpleAtoi(Read(kSupervisorPid).value_or(""), &pid) || pid <= 1) return nobody;
  return pid;
}

absl::Status StateDir::Write(const std::string& name, const std::string& text) const {
  const std::string fresh = File(name + ".new");
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << text << "\n";
    if (!file.flush()) return FileError("write", fresh, errno);
  }
  if (rename(fresh.c_str(), File(name).c_str()) != 0) return FileError("write", File(name), errno);
  return absl::OkStatus();
}

absl::StatusOr<std::string> StateDir::Read(const std::string& name) const {
  std::ifstream file(File(name));
  if (!file) return absl::NotFoundError(absl::StrCat("no file ", File(name)));
  std::ostringstream text;
  text << file.rdbuf();
  std::string result = text.str();
  while (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

void StateDir::Remove(const std::string& name) const { unlink(File(name).c_str()); }

}  // namespace gangway::cli
