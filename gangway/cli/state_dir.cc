// Implementation of state_dir.h.
#include "gangway/cli/state_dir.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::cli {
namespace {

constexpr char kLock[] = "lock";

// Says how to choose another folder.
absl::Status Advise(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::PermissionDeniedError(
      absl::StrCat(status.message(),
                   " (the state folder holds the cluster's secrets and logs, so it must be its ",
                   "user's alone; --state-dir or GANGWAY_STATE_DIR names another)"));
}

// Makes the folder for this user alone, below folders of any kind. False: it exists.
absl::StatusOr<bool> MakeRoot(const std::string& root) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(root, error))) return false;
  GANGWAY_RETURN_IF_ERROR(PrivateFolder::Make(root).status());
  return true;
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

std::string CacheFolder(const std::string& root) {
  const char* named = std::getenv("GANGWAY_CACHE_DIR");
  return named != nullptr && *named != '\0' ? named : root + "/cache";
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
  GANGWAY_ASSIGN_OR_RETURN(const bool made, MakeRoot(root_));
  if (!made) GANGWAY_RETURN_IF_ERROR(Advise(CheckHolder(root_)));
  auto folder = PrivateFolder::Make(path_);
  GANGWAY_RETURN_IF_ERROR(Advise(folder.status()));
  auto lock = folder->OpenFile(kLock, O_RDWR | O_CREAT);
  GANGWAY_RETURN_IF_ERROR(lock.status());
  lock_ = *std::move(lock);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  lock_.Reset();
  return absl::AlreadyExistsError(absl::StrCat(
      "a cluster already runs on port ", port_, " (pid ", Read(kSupervisorPid).value_or("unknown"),
      "): end it with `gangway down --port ", port_, "`, or choose another --port"));
}

absl::StatusOr<PrivateFolder> StateDir::Open() const {
  GANGWAY_RETURN_IF_ERROR(Advise(CheckHolder(root_)));
  auto folder = PrivateFolder::Open(path_);
  GANGWAY_RETURN_IF_ERROR(Advise(folder.status()));
  return folder;
}

absl::StatusOr<pid_t> StateDir::Supervisor() const {
  absl::Status nobody = absl::NotFoundError(
      absl::StrCat("no cluster runs on port ", port_, " (looked in ", path_,
                   "): start one with `gangway up --port ", port_,
                   "`, or give the port of a running one (--port or GANGWAY_PORT)"));
  auto folder = Open();
  if (absl::IsNotFound(folder.status())) return nobody;
  GANGWAY_RETURN_IF_ERROR(folder.status());
  auto file = folder->OpenFile(kLock, O_RDONLY);
  if (absl::IsNotFound(file.status())) return nobody;
  GANGWAY_RETURN_IF_ERROR(file.status());
  const bool free = flock(file->get(), LOCK_SH | LOCK_NB) == 0;
  file->Reset();
  int pid = 0;
  if (free || !absl::SimpleAtoi(Read(kSupervisorPid).value_or(""), &pid) || pid <= 1) return nobody;
  return pid;
}

absl::Status StateDir::Write(const std::string& name, const std::string& text) const {
  GANGWAY_ASSIGN_OR_RETURN(const PrivateFolder folder, Open());
  return folder.Write(name, text + "\n");
}

absl::StatusOr<std::string> StateDir::Read(const std::string& name) const {
  GANGWAY_ASSIGN_OR_RETURN(const PrivateFolder folder, Open());
  GANGWAY_ASSIGN_OR_RETURN(std::string text, folder.Read(name));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void StateDir::Remove(const std::string& name) const {
  if (auto folder = Open(); folder.ok()) folder->Remove(name);
}

absl::StatusOr<PrivateFolder> StateDir::Logs() const {
  GANGWAY_ASSIGN_OR_RETURN(const PrivateFolder folder, Open());
  return folder.MakeFolder("logs");
}

}  // namespace gangway::cli
