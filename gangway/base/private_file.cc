// Implementation of private_file.h.
#include "gangway/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway {
namespace {

constexpr mode_t kOthers = 077;
constexpr uid_t kRoot = 0;

absl::Status SystemError(const char* what, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::InternalError(text);
}

absl::Status CannotWrite(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::Status Foreign(const std::string& path, uid_t owner) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, " belongs to user ", owner, ", but this process runs as user ", geteuid(),
                   ": choose a folder of your own, or run the command as that user"));
}

absl::Status Unlike(const std::string& path, const char* kind) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, " is a link, or no ", kind,
                   ": no link is followed there, since another user may have made it; remove it"));
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("read", path, errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// --- PrivateFolder ---

absl::StatusOr<PrivateFolder> PrivateFolder::Take(std::string path, FileDescriptor folder) {
  if (!folder.valid() && (errno == ELOOP || errno == ENOTDIR)) return Unlike(path, "folder");
  if (!folder.valid()) return SystemError("open", path, errno);
  struct stat about;
  if (fstat(folder.get(), &about) != 0) return SystemError("open", path, errno);
  if (about.st_uid != geteuid()) return Foreign(path, about.st_uid);
  // A file that another user put there before is that user's, or a link: its opening is refused.
  if ((about.st_mode & kOthers) != 0 && fchmod(folder.get(), 0700) != 0)
    return SystemError("protect", path, errno);
  return PrivateFolder(std::move(path), std::move(folder));
}

absl::StatusOr<PrivateFolder> PrivateFolder::Make(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return SystemError("make", parent, error.value());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SystemError("make", path, errno);
  return Open(path);
}

absl::StatusOr<PrivateFolder> PrivateFolder::Open(const std::string& path) {
  return Take(path,
              FileDescriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
}

absl::StatusOr<PrivateFolder> PrivateFolder::MakeFolder(const std::string& name) const {
  if (mkdirat(folder_.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    return SystemError("make", PathOf(name), errno);
  return Take(PathOf(name),
              FileDescriptor(openat(folder_.get(), name.c_str(),
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
}

absl::StatusOr<FileDescriptor> PrivateFolder::OpenFile(const std::string& name, int flags) const {
  const std::string path = PathOf(name);
  // O_NONBLOCK: the open of a FIFO must not wait. It changes nothing for a regular file.
  FileDescriptor file(
      openat(folder_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file.valid() && (errno == ELOOP || errno == ENXIO || errno == EISDIR))
    return Unlike(path, "file");
  if (!file.valid()) return SystemError("open", path, errno);
  struct stat about;
  if (fstat(file.get(), &about) != 0) return SystemError("open", path, errno);
  if (!S_ISREG(about.st_mode)) return Unlike(path, "file");
  if (about.st_uid != geteuid()) return Foreign(path, about.st_uid);
  return file;
}

absl::StatusOr<std::string> PrivateFolder::Read(const std::string& name) const {
  GANGWAY_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(name, O_RDONLY));
  return ReadAll(file.get(), PathOf(name));
}

absl::Status PrivateFolder::Write(const std::string& name, std::string_view text) const {
  const std::string fresh = name + ".new";
  Remove(fresh);  // a writer that died may have left it
  {
    GANGWAY_ASSIGN_OR_RETURN(const FileDescriptor file,
                             OpenFile(fresh, O_WRONLY | O_CREAT | O_EXCL));
    if (!WriteAll(file.get(), text)) return CannotWrite(PathOf(fresh));
  }
  return Rename(fresh, name);
}

absl::Status PrivateFolder::Rename(const std::string& from, const std::string& to) const {
  if (renameat(folder_.get(), from.c_str(), folder_.get(), to.c_str()) == 0)
    return absl::OkStatus();
  return SystemError("write", PathOf(to), errno);
}

void PrivateFolder::Remove(const std::string& name) const {
  unlinkat(folder_.get(), name.c_str(), 0);
}

// --- Paths that a user names ---

absl::Status CheckHolder(const std::string& folder) {
  const auto is_foreign = [](const struct stat& about) {
    return about.st_uid != geteuid() && about.st_uid != kRoot;
  };
  struct stat link, about;
  if (lstat(folder.c_str(), &link) != 0 || stat(folder.c_str(), &about) != 0)
    return SystemError("open", folder, errno);
  if (is_foreign(link)) return Foreign(folder, link.st_uid);
  if (is_foreign(about)) return Foreign(folder, about.st_uid);
  if ((about.st_mode & S_IWOTH) == 0 || (about.st_mode & S_ISVTX) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("all users may write to ", folder,
                   ", and put another folder in place of one in it: chmod o-w ", folder,
                   ", or choose another folder"));
}

absl::StatusOr<FileDescriptor> OpenOutput(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  FileDescriptor file(open(path.c_str(), kFlags | O_NOFOLLOW, 0666));
  if (!file.valid() && errno == ELOOP) {  // such as /dev/stdout, which is root's
    struct stat link;
    if (lstat(path.c_str(), &link) != 0 || (link.st_uid != geteuid() && link.st_uid != kRoot))
      return absl::PermissionDeniedError(absl::StrCat(path, " is a link of another user's"));
    file.Reset(open(path.c_str(), kFlags, 0666));
  }
  if (file.valid()) return file;
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about;
  if (!file.valid() || fstat(file.get(), &about) != 0)
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  // In a container that does not run as root, a mounted secret is root's, and its group the container's.
  const mode_t open_to =
      about.st_uid == kRoot && geteuid() != kRoot ? kOthers & ~mode_t{S_IRGRP} : kOthers;
  if ((about.st_mode & open_to) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is a secret, but other users can read it: chmod 600 ", path,
                     ", and replace it if another user may have read it"));
  }
  return ReadAll(file.get(), path);
}

absl::Status WritePrivateFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // a writer that died may have left it
  FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || !WriteAll(file.get(), text)) return CannotWrite(fresh);
  if (rename(fresh.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

}  // namespace gangway
